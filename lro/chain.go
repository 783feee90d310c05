package lro

// AppendFragments appends the frame of a, as slices of its members' memory, to dst: the head's frame, then the payload
// of each further member. It allocates only if dst has too little room. in is the slice that was given to Batch. Members
// whose Len is larger than len(Data) contribute what lies in Data; their other fragments are the caller's to insert.
func AppendFragments(dst [][]byte, in []Packet, a *Aggregate) [][]byte {
	head := &in[a.Head]
	dst = append(dst, head.Data[:min(head.Len, uint32(len(head.Data)))])
	for i := head.Next; i >= 0; i = in[i].Next {
		p := &in[i]
		end := min(uint32(p.PayloadOffset)+p.PayloadLen, uint32(len(p.Data)))
		dst = append(dst, p.Data[p.PayloadOffset:end])
	}
	return dst
}
