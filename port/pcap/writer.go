package pcap

import (
	"io"
	"runtime"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Writer writes records as pcapng (draft-ietf-opsawg-pcapng), which tcpdump and
// Wireshark read. Each point is an interface of the file, with the point as its
// description; packets have their direction, queue and comment.
type Writer struct {
	ng    *pcapgo.NgWriter
	index [NumPoints]int
}

// NewWriter writes the file's beginning, for packets of the named interface.
func NewWriter(w io.Writer, name, filter string, snapLen int, points []Point) (*Writer, error) {
	face := func(p Point) pcapgo.NgInterface {
		return pcapgo.NgInterface{
			Name: name, Description: p.String(), Filter: filter, OS: runtime.GOOS,
			LinkType: layers.LinkTypeEthernet, SnapLength: uint32(snapLen),
		}
	}
	options := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{OS: runtime.GOOS, Hardware: runtime.GOARCH, Application: "nicd"}}
	ng, err := pcapgo.NewNgWriterInterface(w, face(points[0]), options)
	if err != nil {
		return nil, err
	}
	out := &Writer{ng: ng}
	for i, p := range points {
		if i > 0 {
			if _, err := ng.AddInterface(face(p)); err != nil {
				return nil, err
			}
		}
		out.index[p] = i
	}
	return out, ng.Flush()
}

// Write writes a packet of one of the points that NewWriter was told.
func (w *Writer) Write(r *Record) error {
	info := gopacket.CaptureInfo{
		Timestamp: time.Unix(0, r.Time), CaptureLength: len(r.Data), Length: max(r.Len, len(r.Data)), InterfaceIndex: w.index[r.Point],
	}
	queue := uint32(r.Queue)
	options := pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionOutbound}, Queue: &queue}
	if r.Point.Incoming() {
		options.Flags.Direction = pcapgo.NgEpbFlagDirectionInbound
	}
	if r.Comment != "" {
		options.Comments = []string{r.Comment}
	}
	return w.ng.WritePacketWithOptions(info, r.Data, options)
}

// Flush writes what is buffered.
func (w *Writer) Flush() error { return w.ng.Flush() }
