// Assembly because Go offers no store that is neither removable nor free of a
// read, and for less than 32 bits no load that is not removable. The barrier (DMB OSHST: stores before stores, outer shareable domain,
// where devices are) makes descriptors visible before the doorbell.

#include "textflag.h"

// func Store32(addr *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVD addr+0(FP), R0
	MOVW v+8(FP), R1
	DMB  $0x2
	MOVW R1, (R0)
	RET

// func Store16(addr *uint16, v uint16)
TEXT ·Store16(SB), NOSPLIT, $0-10
	MOVD addr+0(FP), R0
	MOVHU v+8(FP), R1
	DMB  $0x2
	MOVH R1, (R0)
	RET

// func Store8(addr *uint8, v uint8)
TEXT ·Store8(SB), NOSPLIT, $0-9
	MOVD addr+0(FP), R0
	MOVBU v+8(FP), R1
	DMB  $0x2
	MOVB R1, (R0)
	RET

// func Load16(addr *uint16) uint16
TEXT ·Load16(SB), NOSPLIT, $0-10
	MOVD addr+0(FP), R0
	LDARH (R0), R1
	MOVH R1, ret+8(FP)
	RET

// func Load8(addr *uint8) uint8
TEXT ·Load8(SB), NOSPLIT, $0-9
	MOVD addr+0(FP), R0
	LDARB (R0), R1
	MOVB R1, ret+8(FP)
	RET
