package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"nicd/port/pcap"
	"nicd/proto/adminpb"
)

// captureFlags are those of "nicd capture".
type captureFlags struct {
	points  []string
	file    string
	filter  string
	snapLen uint32
	count   int
}

func captureCommand(f *flags) *cobra.Command {
	c := &captureFlags{}
	cmd := &cobra.Command{
		Use: "capture IFACE", Short: "Capture packets of an interface, as text or pcapng", Args: args(1, 1, "an interface"),
		Long: `Capture shows the packets of an interface as they pass, until it is interrupted,
or writes them as pcapng:

  nicd capture vmx0 -w - | tcpdump -r -
  nicd capture vmx0 --point rx-wire,rx-delivered -w lro.pcapng

Points: rx-wire (frames as they reach the device) and tx-wire (as they leave it),
which can be seen for simulated devices only; rx-delivered (packets as the port
gets them, coalesced ones whole) and tx-port (as it sends them).

The filter is a part of tcpdump's language: ip ip6 arp tcp udp icmp icmp6, vlan
[ID], [src|dst] host ADDRESS, [src|dst] net PREFIX, [src|dst] port NUMBER, ether
[src|dst] host ADDRESS, less and greater LENGTH, not, and, or, ( ).`,
		RunE: func(cmd *cobra.Command, args []string) error {
			points, err := c.parse()
			if err != nil {
				return &usageError{err}
			}
			if c.count < 0 {
				return &usageError{fmt.Errorf("-c %d: it takes a number of packets, 0 is no end", c.count)}
			}
			return c.run(cmd.Context(), f, args[0], points)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&c.points, "point", []string{pcap.RxDelivered.String(), pcap.TxPort.String()}, "where to look: "+strings.Join(pcap.PointNames(), ", "))
	flags.StringVarP(&c.file, "write", "w", "", "write pcapng to a file, or to standard output with -")
	flags.StringVar(&c.filter, "filter", "", "capture these packets only")
	flags.Uint32Var(&c.snapLen, "snaplen", 0, "bytes to keep of a packet (0: all)")
	flags.IntVarP(&c.count, "count", "c", 0, "stop after so many packets (0: no end)")
	return cmd
}

// parse checks what can be checked without a daemon.
func (c *captureFlags) parse() (points []pcap.Point, err error) {
	for _, name := range c.points {
		p, err := pcap.ParsePoint(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(points, p) {
			points = append(points, p)
		}
	}
	if c.filter != "" {
		_, err = pcap.ParseFilter(c.filter)
	}
	if len(points) == 0 {
		err = errors.New("--point names no point")
	}
	return points, err
}

// captureOutput is where captured packets go.
type captureOutput interface {
	Write(*pcap.Record) error
	Flush() error
}

func (c *captureFlags) run(ctx context.Context, f *flags, name string, points []pcap.Point) error {
	signal.Ignore(syscall.SIGPIPE) // a reader that hangs up is an error of Write, and none of ours
	seen, lost := 0, uint64(0)
	err := f.stream(ctx, func(ctx context.Context, client adminpb.AdminClient) error {
		in, err := client.Capture(ctx, &adminpb.CaptureRequest{Interface: name, Points: c.points, SnapLen: c.snapLen, Filter: c.filter})
		if err != nil {
			return err
		}
		if _, err := in.Recv(); err != nil { // it has begun
			return err
		}
		out, done, err := c.open(name, points)
		if err != nil {
			return err
		}
		seen, lost, err = c.copy(ctx, in, out)
		return errors.Join(err, done())
	})
	if errors.Is(err, syscall.EPIPE) {
		err = nil // the reader has seen enough
	}
	if err == nil && c.file != "" {
		fmt.Fprintf(os.Stderr, "%d packets captured, %d lost because they were not read fast enough\n", seen, lost)
	}
	return err
}

// copy writes what the daemon sends until there are enough packets, ctx is done or
// the daemon ends.
func (c *captureFlags) copy(ctx context.Context, in grpc.ServerStreamingClient[adminpb.CaptureReply], out captureOutput) (seen int, lost uint64, err error) {
	for {
		reply, err := in.Recv()
		switch {
		case err == io.EOF, ctx.Err() != nil:
			return seen, lost, nil
		case err != nil:
			return seen, lost, err
		}
		lost = reply.GetLost()
		for _, p := range reply.GetPackets() {
			if err := out.Write(record(p)); err != nil {
				return seen, lost, err
			}
			if seen++; seen == c.count {
				return seen, lost, out.Flush()
			}
		}
		if err := out.Flush(); err != nil {
			return seen, lost, err
		}
	}
}

// open makes the output after the capture has begun, so that a mistake leaves no
// file.
func (c *captureFlags) open(name string, points []pcap.Point) (captureOutput, func() error, error) {
	switch c.file {
	case "":
		return textOutput{os.Stdout}, noClose, nil
	case "-":
		w, err := pcap.NewWriter(os.Stdout, name, c.filter, int(c.snapLen), points)
		return w, noClose, err
	}
	file, err := os.Create(c.file)
	if err != nil {
		return nil, nil, err
	}
	w, err := pcap.NewWriter(file, name, c.filter, int(c.snapLen), points)
	return w, file.Close, err
}

func noClose() error { return nil }

func record(p *adminpb.CapturedPacket) *pcap.Record {
	point, _ := pcap.ParsePoint(p.GetPoint())
	return &pcap.Record{
		Time: p.GetTimeNs(), Point: point, Queue: int(p.GetQueue()), Len: int(p.GetLength()), Data: p.GetData(), Comment: p.GetComment(),
	}
}

// textOutput prints a line for each packet.
type textOutput struct{ w io.Writer }

func (o textOutput) Write(r *pcap.Record) error {
	line := fmt.Sprintf("%s %-12s q%d %6d bytes  %s", time.Unix(0, r.Time).Format("15:04:05.000000"), r.Point, r.Queue, r.Len, pcap.Summary(r.Data))
	if r.Comment != "" {
		line += "  (" + r.Comment + ")"
	}
	_, err := fmt.Fprintln(o.w, line)
	return err
}

func (o textOutput) Flush() error { return nil }
