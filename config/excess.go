package config

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// The HCL parser recurses, at some 12 KB of stack for a bracket, and a Go program
// that runs out of stack can't be saved. And its numbers are of any size: to
// print 1e99999999 takes minutes. So the tokens are looked at first.
const (
	maxNesting   = 64   // brackets, quotes and templates in one another
	maxOperators = 4096 // in all: chains of !, - and ?: recurse too
	maxDigits    = 64   // of a number
	maxExponent  = 3    // digits of its exponent
)

// excess finds the first thing in a source that the parser should not be given.
func excess(src []byte, filename string) (at hcl.Range, what string) {
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos)
	depth, operators := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			depth--
		case hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenQuestion:
			operators++
		case hclsyntax.TokenNumberLit:
			_, exponent, _ := strings.Cut(strings.ToLower(string(t.Bytes)), "e")
			if len(t.Bytes) > maxDigits || len(strings.TrimLeft(exponent, "+-")) > maxExponent {
				return t.Range, "this number is beyond all ranges"
			}
		}
		if depth > maxNesting || operators > maxOperators {
			return t.Range, "this is nested deeper than any config"
		}
	}
	return hcl.Range{}, ""
}
