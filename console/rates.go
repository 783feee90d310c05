package console

import (
	"nicd/proto/adminpb"
)

// Rates turns two pictures of a daemon, seconds apart, into what happened per
// second between them. Interfaces and streams that are in one only are left out.
func Rates(from, to *adminpb.StatusReply, seconds float64) ([]*adminpb.InterfaceReport, []*adminpb.StreamReport) {
	if seconds <= 0 {
		return nil, nil
	}
	var interfaces []*adminpb.InterfaceReport
	for _, now := range to.Interfaces {
		for _, then := range from.Interfaces {
			if then.Name == now.Name {
				interfaces = append(interfaces, interfaceRates(then, now, seconds))
			}
		}
	}
	var streams []*adminpb.StreamReport
	for _, now := range to.Streams {
		for _, then := range from.Streams {
			if then.Name == now.Name {
				streams = append(streams, &adminpb.StreamReport{Stream: now, Gbps: gbps(now.Bytes-then.Bytes, seconds)})
			}
		}
	}
	return interfaces, streams
}

func interfaceRates(then, now *adminpb.Interface, seconds float64) *adminpb.InterfaceReport {
	r := &adminpb.InterfaceReport{
		Interface:           now,
		RxGbps:              gbps(now.RxBytes-then.RxBytes, seconds),
		TxGbps:              gbps(now.TxBytes-then.TxBytes, seconds),
		RxPps:               float64(now.RxPackets-then.RxPackets) / seconds,
		TxPps:               float64(now.TxPackets-then.TxPackets) / seconds,
		InterruptsPerSecond: float64(now.Interrupts-then.Interrupts) / seconds,
		PollsPerSecond:      float64(now.Polls-then.Polls) / seconds,
	}
	if delivered := now.RxDeliveredPackets - then.RxDeliveredPackets; delivered > 0 {
		r.SegmentsPerDelivered = float64(now.RxWireSegments-then.RxWireSegments) / float64(delivered)
	}
	return r
}

func gbps(bytes uint64, seconds float64) float64 { return float64(bytes) * 8 / 1e9 / seconds }
