package vmxnet3

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"
)

// The key and vectors of "Verifying the RSS Hash Calculation" (Microsoft,
// Windows driver documentation).
const microsoftKey = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"

var microsoftVectors = []struct {
	src, dst     string
	sport, dport uint16
	ip, tcp      uint32
}{
	{"66.9.149.187", "161.142.100.80", 2794, 1766, 0x323e8fc2, 0x51ccc178},
	{"199.92.111.2", "65.69.140.83", 14230, 4739, 0xd718262a, 0xc626b0ea},
	{"24.19.198.95", "12.22.207.184", 12898, 38024, 0xd2d0a5de, 0x5c2b394a},
	{"38.27.205.30", "209.142.163.6", 48228, 2217, 0x82989176, 0xafc7327f},
	{"153.39.163.191", "202.188.127.2", 44251, 1303, 0x5d1809c5, 0x10e828a2},
	{"3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766, 0x2cc18cd5, 0x40207d3d},
	{"3ffe:501:8::260:97ff:fe40:efab", "ff02::1", 14230, 4739, 0x0f0c461c, 0xdde51bbf},
	{"3ffe:1900:4545:3:200:f8ff:fe21:67cf", "fe80::200:f8ff:fe21:67cf", 44251, 38024, 0x4b61e985, 0x02d1feef},
}

func rssConf(types uint16, tableSize int, queue func(int) uint8) []byte {
	b := make([]byte, 176)
	le := binary.LittleEndian
	le.PutUint16(b[0:], types)
	le.PutUint16(b[2:], 1)
	le.PutUint16(b[4:], 40)
	le.PutUint16(b[6:], uint16(tableSize))
	key, _ := hex.DecodeString(microsoftKey)
	copy(b[8:], key)
	for i := range tableSize {
		b[48+i] = queue(i)
	}
	return b
}

func vectorFrame(i int, proto byte) tframe {
	v := microsoftVectors[i]
	f := tcpFrame(200)
	f.proto = proto
	src, dst := netip.MustParseAddr(v.src), netip.MustParseAddr(v.dst)
	f.v6 = src.Is6()
	copy(f.src[:], src.AsSlice())
	copy(f.dip[:], dst.AsSlice())
	f.sport, f.dport = v.sport, v.dport
	return f
}

func TestRSSAgainstPublishedVectors(t *testing.T) {
	w, peer := newTestWire(t)
	const queues = 4
	spread := func(i int) uint8 { return uint8(i * 7 % queues) }
	d := newDriver(t, w, setup{rxq: queues, features: bitRSS, rssConf: rssConf(0xf, 128, spread)})
	check := func(i int, proto byte, hash, kind uint32) {
		t.Helper()
		f := vectorFrame(i, proto)
		inject(t, peer, f.frame())
		q := spread(int(hash % 128))
		c := expect(t, d.rx[q], f.bytes()).eop()
		if c[1] != hash || c[0]>>26&15 != kind {
			t.Errorf("vector %d, protocol %d: hash %#x type %d, want %#x type %d", i, proto, c[1], c[0]>>26&15, hash, kind)
		}
	}
	pick := func(v6 bool, four, six uint32) uint32 {
		if v6 {
			return six
		}
		return four
	}
	for i, v := range microsoftVectors {
		v6 := netip.MustParseAddr(v.src).Is6()
		check(i, 6, v.tcp, pick(v6, 2, 4))
		check(i, 17, v.ip, pick(v6, 1, 3))
		check(i, 99, v.ip, pick(v6, 1, 3))
	}
	// Revision 4 hashes UDP when asked.
	d.put32(d.shared+704, fieldTCPIPv4|fieldTCPIPv6|fieldUDPIPv4|fieldUDPIPv6|0x30)
	if d.command(cmdSetRSSFields) != 0 || d.command(cmdGetRSSFields) != 0xf {
		t.Error("RSS fields")
	}
	for i, v := range microsoftVectors {
		check(i, 17, v.tcp, pick(netip.MustParseAddr(v.src).Is6(), 5, 6))
	}
	// A new table takes effect at UPDATE_RSSIDT.
	at := d.get64(d.shared + 656)
	spread = func(int) uint8 { return 2 }
	copy(d.at(at, 176), rssConf(0xf, 64, spread))
	if d.command(cmdUpdateRSSIDT) != 0 {
		t.Error("UPDATE_RSSIDT failed")
	}
	check(0, 6, microsoftVectors[0].tcp, 2)
	d.at(at, 176)[48+5] = queues
	if d.command(cmdUpdateRSSIDT) != 1 {
		t.Error("a table that names a queue too many was accepted")
	}
}

func TestNoRSSMeansQueueZero(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{rxq: 8})
	for i := range microsoftVectors {
		f := vectorFrame(i, 6)
		inject(t, peer, f.frame())
		if c := expect(t, d.rx[0], f.bytes()).eop(); c[1] != 0 || c[0]>>26&15 != 0 {
			t.Error("hash without RSS")
		}
	}
}

func TestRSSTypesAreSelectable(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{rxq: 2, revision: 1, features: bitRSS, rssConf: rssConf(hashIPv4, 2, func(i int) uint8 { return uint8(i) })})
	f := vectorFrame(0, 6)
	inject(t, peer, f.frame())
	h := microsoftVectors[0].ip
	if c := expect(t, d.rx[h%2], f.bytes()).eop(); c[1] != h || c[0]>>26&15 != 1 {
		t.Errorf("hash %#x", c[1])
	}
	f = vectorFrame(5, 6)
	inject(t, peer, f.frame())
	if c := expect(t, d.rx[0], f.bytes()).eop(); c[0]>>26&15 != 0 {
		t.Error("IPv6 hashed though off")
	}
}
