// Assembly because Go offers no store that is neither removable nor an
// exchange, and for less than 32 bits no load that is not removable. Stores to uncached memory are ordered after earlier stores to
// ordinary memory on this architecture, so one MOVL is all.

#include "textflag.h"

// func Store32(addr *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVQ addr+0(FP), AX
	MOVL v+8(FP), CX
	MOVL CX, (AX)
	RET

// func Store16(addr *uint16, v uint16)
TEXT ·Store16(SB), NOSPLIT, $0-10
	MOVQ addr+0(FP), AX
	MOVW v+8(FP), CX
	MOVW CX, (AX)
	RET

// func Store8(addr *uint8, v uint8)
TEXT ·Store8(SB), NOSPLIT, $0-9
	MOVQ addr+0(FP), AX
	MOVB v+8(FP), CX
	MOVB CX, (AX)
	RET

// func Load16(addr *uint16) uint16
TEXT ·Load16(SB), NOSPLIT, $0-10
	MOVQ addr+0(FP), AX
	MOVW (AX), CX
	MOVW CX, ret+8(FP)
	RET

// func Load8(addr *uint8) uint8
TEXT ·Load8(SB), NOSPLIT, $0-9
	MOVQ addr+0(FP), AX
	MOVB (AX), CX
	MOVB CX, ret+8(FP)
	RET
