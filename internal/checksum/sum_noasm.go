//go:build !amd64

package checksum

func sumNative(b []byte) uint64 { return sumGeneric(b) }
