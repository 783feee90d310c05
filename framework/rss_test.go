package framework

import "testing"

func TestRSSWords(t *testing.T) {
	var rss RSS
	for i := range rss.Key {
		rss.Key[i] = byte(i)
	}
	for i := range rss.Indirection {
		rss.Indirection[i] = uint8(i % 2)
	}
	rss.Indirection[126] = 3
	if key := rss.KeyWords(); key[0] != 0x03020100 || key[9] != 0x27262524 {
		t.Errorf("key %#x", key)
	}
	if table := rss.TableWords(6); table[0] != 0x40004000 || table[31] != 0x40C04000 {
		t.Errorf("table %#x", table)
	}
}
