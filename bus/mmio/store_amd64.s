// Assembly because Go offers no store that is neither removable nor an
// exchange. Stores to uncached memory are ordered after earlier stores to
// ordinary memory on this architecture, so one MOVL is all.

#include "textflag.h"

// func Store32(addr *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVQ addr+0(FP), AX
	MOVL v+8(FP), CX
	MOVL CX, (AX)
	RET
