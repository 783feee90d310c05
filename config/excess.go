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
	maxOperators = 4096 // in all: chains of !, -, ?: and %{if} recurse too
	maxDigits    = 64   // of a number
	maxExponent  = 3    // digits of its exponent
)

// closer is what ends that which a token begins.
var closer = map[hclsyntax.TokenType]hclsyntax.TokenType{
	hclsyntax.TokenOBrace:          hclsyntax.TokenCBrace,
	hclsyntax.TokenOBrack:          hclsyntax.TokenCBrack,
	hclsyntax.TokenOParen:          hclsyntax.TokenCParen,
	hclsyntax.TokenOQuote:          hclsyntax.TokenCQuote,
	hclsyntax.TokenOHeredoc:        hclsyntax.TokenCHeredoc,
	hclsyntax.TokenTemplateInterp:  hclsyntax.TokenTemplateSeqEnd,
	hclsyntax.TokenTemplateControl: hclsyntax.TokenTemplateSeqEnd,
}

// excess finds the first thing in a source that the parser should not be given.
func excess(src []byte, filename string) (at hcl.Range, what string) {
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos)
	var open []hclsyntax.TokenType // what ends those that are open
	operators := 0
	for _, t := range tokens {
		if c, ok := closer[t.Type]; ok {
			open = append(open, c)
		} else if n := len(open); n > 0 && open[n-1] == t.Type {
			open = open[:n-1] // one that closes nothing makes no room: the parser goes on behind it
		}
		switch t.Type {
		case hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenQuestion, hclsyntax.TokenTemplateControl:
			operators++
		case hclsyntax.TokenNumberLit:
			_, exponent, _ := strings.Cut(strings.ToLower(string(t.Bytes)), "e")
			if len(t.Bytes) > maxDigits || len(strings.TrimLeft(exponent, "+-")) > maxExponent {
				return t.Range, "this number is beyond all ranges"
			}
		}
		if len(open) > maxNesting || operators > maxOperators {
			return t.Range, "this is nested deeper than any config"
		}
	}
	return hcl.Range{}, ""
}
