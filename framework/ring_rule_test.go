package framework

import "testing"

func TestRingRule(t *testing.T) {
	eights := RingRule{Min: 64, Max: 4096, Multiple: 8, Default: 512}
	powers := RingRule{Min: 2, Max: 256, Multiple: PowersOfTwo, Default: 256}
	any := RingRule{Min: 3, Max: 10, Default: 5}
	for _, c := range []struct {
		rule       RingRule
		n          int
		allowed    bool
		fit, above int
	}{
		{eights, 64, true, 64, 72}, {eights, 63, false, 64, 64}, {eights, 70, false, 64, 72}, {eights, 4096, true, 4096, 4096},
		{eights, 5000, false, 4096, 4096}, {eights, 0, false, 64, 64}, {eights, -1, false, 64, 64},
		{powers, 2, true, 2, 4}, {powers, 192, false, 128, 256}, {powers, 256, true, 256, 256}, {powers, 512, false, 256, 256},
		{powers, 1, false, 2, 2}, {powers, 0, false, 2, 2}, {powers, 3, false, 2, 4},
		{any, 3, true, 3, 4}, {any, 10, true, 10, 10}, {any, 11, false, 10, 10},
	} {
		if got := c.rule.Allows(c.n); got != c.allowed {
			t.Errorf("%v: %d is allowed: %v", c.rule, c.n, got)
		}
		if got := c.rule.Fit(c.n); got != c.fit {
			t.Errorf("%v: %d fits to %d, want %d", c.rule, c.n, got, c.fit)
		}
		if got := c.rule.Above(c.n); got != c.above {
			t.Errorf("%v: above %d is %d, want %d", c.rule, c.n, got, c.above)
		}
	}
	for want, rule := range map[string]RingRule{"64 to 4096 in steps of 8": eights, "2 to 256, powers of two": powers, "3 to 10 in steps of 1": any} {
		if got := rule.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRingRuleOfPowersIsChecked(t *testing.T) {
	for rule, sane := range map[RingRule]bool{
		{2, 256, PowersOfTwo, 64}:     true,
		{2, 256, PowersOfTwo, 65}:     false,
		{3, 256, PowersOfTwo, 64}:     false,
		{2, 257, PowersOfTwo, 64}:     false,
		{2, 256, PowersOfTwo - 1, 64}: false,
	} {
		if err := rule.check("receive"); (err == nil) != sane {
			t.Errorf("%v usually %d: %v", rule, rule.Default, err)
		}
	}
}
