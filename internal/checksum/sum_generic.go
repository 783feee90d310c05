package checksum

func sumNative(b []byte) uint64 { return sumGeneric(b) }
