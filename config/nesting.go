package config

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// The HCL parser recurses, at some 12 KB of stack for a bracket, and a Go program
// that runs out of stack can't be saved. So what it would recurse on is counted
// first.
const (
	maxNesting   = 64   // brackets, quotes and templates in one another
	maxOperators = 4096 // in all: chains of !, - and ?: recurse too
)

// tooDeep is the place where a source is nested deeper than the parser should be
// let in, if there is one.
func tooDeep(src []byte, filename string) (at hcl.Range, found bool) {
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
		}
		if depth > maxNesting || operators > maxOperators {
			return t.Range, true
		}
	}
	return hcl.Range{}, false
}
