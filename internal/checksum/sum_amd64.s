// Why assembly: Go has neither vector instructions nor a way to make the compiler use them, and the sum over the payload
// is the largest part of verifying a packet. The generic code takes three to four times as long.

#include "textflag.h"

// func sumAVX2(p *byte, n int) int64
//
// VPMADDWD multiplies signed words and adds neighbours into 32-bit lanes, which sums 16 words at once; flipping the
// highest bit makes an unsigned word a signed one that is less by 0x8000, and the caller adds that back.
TEXT ·sumAVX2(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	VPCMPEQW Y8, Y8, Y8
	VPSRLW $15, Y8, Y9    // 0x0001 in all words
	VPSLLW $15, Y8, Y8    // 0x8000 in all words
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	SUBQ $128, CX
	JB tail

loop:
	VPXOR (SI), Y8, Y4
	VPXOR 32(SI), Y8, Y5
	VPXOR 64(SI), Y8, Y6
	VPXOR 96(SI), Y8, Y7
	VPMADDWD Y9, Y4, Y4
	VPMADDWD Y9, Y5, Y5
	VPMADDWD Y9, Y6, Y6
	VPMADDWD Y9, Y7, Y7
	VPADDD Y4, Y0, Y0
	VPADDD Y5, Y1, Y1
	VPADDD Y6, Y2, Y2
	VPADDD Y7, Y3, Y3
	ADDQ $128, SI
	SUBQ $128, CX
	JAE loop

tail:
	ADDQ $128, CX
	JZ fold

tailLoop:
	VPXOR (SI), Y8, Y4
	VPMADDWD Y9, Y4, Y4
	VPADDD Y4, Y0, Y0
	ADDQ $32, SI
	SUBQ $32, CX
	JNZ tailLoop

fold:
	VPADDD Y1, Y0, Y0
	VPADDD Y3, Y2, Y2
	VPADDD Y2, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VPADDD X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VPADDD X1, X0, X0
	VMOVD X0, AX
	MOVLQSX AX, AX
	MOVQ AX, ret+16(FP)
	VZEROUPPER
	RET
