package daemon

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nicd/config"
	"nicd/port/pcap"
	"nicd/proto/adminpb"
	"nicd/sim"
)

// newHub is the capture points of an interface: a simulated device's wire is
// nicd's, so it can be seen too.
func newHub(c *config.Interface) *pcap.Hub {
	points := []pcap.Point{pcap.RxDelivered, pcap.TxPort}
	if c.Device.Sim != nil {
		points = append(points, pcap.RxWire, pcap.TxWire)
	}
	return pcap.NewHub(c.Name, points...)
}

// watchedEnd is an end of a wire whose frames can be captured.
type watchedEnd struct {
	sim.End
	hub *pcap.Hub
}

// Plug implements sim.End.
func (e *watchedEnd) Plug(p *sim.Port) {
	p.Watch(func(frames []sim.Frame) { e.show(pcap.TxWire, frames) })
	e.End.Plug(p)
}

// Receive implements sim.End.
func (e *watchedEnd) Receive(frames []sim.Frame, pause bool) int {
	n := e.End.Receive(frames, pause)
	e.show(pcap.RxWire, frames[:n])
	return n
}

func (e *watchedEnd) show(point pcap.Point, frames []sim.Frame) {
	if !e.hub.Watched(point) {
		return
	}
	e.hub.Put(point, 0, len(frames), func(i int, p *pcap.Packet) {
		f := &frames[i]
		*p = pcap.Packet{Parts: f.Parts, Len: f.Len, Partial: f.Flags&sim.Partial != 0}
		if f.Flags&sim.Segment != 0 {
			p.Segments, p.SegmentSize = f.Segments(), f.SegmentSize
		}
	})
}

// captureBatch is how many packets go into one message, which has to stay below
// gRPC's 4 MiB: of the longest frames, 32 do.
const captureBatch = 32

// Capture streams what passes at an interface's points until the client hangs up.
// The first message has no packets: it says that the capture has begun.
func (a *adminServer) Capture(r *adminpb.CaptureRequest, out grpc.ServerStreamingServer[adminpb.CaptureReply]) error {
	i, err := a.find(r.GetInterface())
	if err != nil {
		return err
	}
	options := pcap.Options{SnapLen: int(r.GetSnapLen()), Filter: r.GetFilter()}
	for _, name := range r.GetPoints() {
		p, err := pcap.ParsePoint(name)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		options.Points = append(options.Points, p)
	}
	if len(options.Points) == 0 {
		options.Points = []pcap.Point{pcap.RxDelivered, pcap.TxPort}
	}
	c, err := i.hub.Start(options)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	defer c.Stop()
	if err := out.Send(&adminpb.CaptureReply{}); err != nil {
		return err
	}
	for {
		records, lost, err := c.Next(out.Context(), captureBatch)
		if err != nil {
			return nil // the client hung up, or nicd stops
		}
		reply := &adminpb.CaptureReply{Lost: lost}
		for n := range records {
			reply.Packets = append(reply.Packets, capturedPacket(&records[n]))
		}
		if err := out.Send(reply); err != nil {
			return err
		}
	}
}

func capturedPacket(r *pcap.Record) *adminpb.CapturedPacket {
	return &adminpb.CapturedPacket{
		TimeNs: r.Time, Point: r.Point.String(), Queue: uint32(r.Queue), Length: uint32(r.Len), Data: r.Data, Comment: r.Comment,
	}
}
