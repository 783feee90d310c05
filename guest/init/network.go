package main

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"nicd/guest"
)

// datagram is how many bytes sendDatagrams puts in one, flows how many it sends in
// turns, so that each transmit queue gets some.
const (
	datagram = 1400
	flows    = 16
)

// sendDatagrams sends what nobody answers, so nobody misses what is lost.
func sendDatagrams(s guest.Step) error {
	name, err := interfaceOf(s)
	if err != nil {
		return err
	}
	if err := awaitCarrier(name); err != nil {
		return err
	}
	to, err := url.Parse(s.URL)
	if err != nil {
		return err
	}
	var conns [flows]net.Conn
	for i := range conns {
		if conns[i], err = net.Dial("udp", to.Host); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	payload := bytes.Repeat([]byte{1}, datagram)
	for i := 0; int64(i)*datagram < s.Bytes; i++ {
		if _, err := conns[i%flows].Write(payload); err != nil && !refused(err) {
			return err
		}
	}
	return nil
}

// refused: the far end has no such port, which is how it answers an earlier one.
func refused(err error) bool { return strings.Contains(err.Error(), "connection refused") }

func awaitCarrier(name string) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if text, err := os.ReadFile("/sys/class/net/" + name + "/carrier"); err == nil && strings.TrimSpace(string(text)) == "1" {
			return nil
		}
	}
	return fmt.Errorf("%s has no carrier", name)
}

// retransmits are counters of the kernel's TCP: a line of names, a line of values.
func retransmits() (map[string]uint64, error) {
	text, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return nil, err
	}
	var names []string
	counters := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if i >= len(fields) || name != "OutSegs" && name != "RetransSegs" {
				continue
			}
			if counters[name], err = strconv.ParseUint(fields[i], 10, 64); err != nil {
				return nil, err
			}
		}
	}
	return counters, nil
}
