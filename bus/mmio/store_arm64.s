// Assembly because Go offers no store that is neither removable nor free of a
// read. The barrier (DMB OSHST: stores before stores, outer shareable domain,
// where devices are) makes descriptors visible before the doorbell.

#include "textflag.h"

// func Store32(addr *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVD addr+0(FP), R0
	MOVW v+8(FP), R1
	DMB  $0x2
	MOVW R1, (R0)
	RET
