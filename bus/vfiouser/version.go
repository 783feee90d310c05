package vfiouser

import (
	"encoding/json"
	"fmt"
)

// version is the body of VERSION and its reply: major u16, minor u16, then
// optional JSON that ends in a NUL.
type version struct {
	major, minor uint16
	hasJSON      bool
	caps         capabilities
}

const (
	versionSize = 4

	ourMajor = 0
	// ourMinor is the newest that we speak; released QEMU speaks 0.
	ourMinor = 1
)

// capabilities are what each side can do; a member that is absent was not
// proposed. A server answers only members that were. The two that begin with
// nicd are this package's extensions, which other peers ignore.
type capabilities struct {
	MaxMsgFDs       *uint32 `json:"max_msg_fds,omitempty"`
	MaxDataXferSize *uint32 `json:"max_data_xfer_size,omitempty"`
	MaxDMAMaps      *uint32 `json:"max_dma_maps,omitempty"`
	PageSizes       *uint64 `json:"pgsizes,omitempty"`
	WriteMultiple   *bool   `json:"write_multiple,omitempty"`
	// Doorbells: shadow ioeventfds follow bus.Doorbells' protocol, with an armed
	// word and a count of posted writes.
	Doorbells *bool `json:"nicd_doorbells,omitempty"`
	// DMABase is bus.Info.DMABase.
	DMABase *uint64 `json:"nicd_dma_base,omitempty"`
}

// versionJSON is the JSON document.
type versionJSON struct {
	Capabilities capabilities `json:"capabilities"`
}

func (v version) append(b []byte) []byte {
	b = host.AppendUint16(b, v.major)
	b = host.AppendUint16(b, v.minor)
	if !v.hasJSON {
		return b
	}
	doc, err := json.Marshal(versionJSON{v.caps})
	if err != nil {
		panic(fmt.Sprintf("vfiouser: capabilities: %v", err)) // numbers and booleans can be marshalled
	}
	return append(append(b, doc...), 0)
}

func parseVersion(b []byte) (version, error) {
	if len(b) < versionSize {
		return version{}, errShort
	}
	v := version{major: host.Uint16(b), minor: host.Uint16(b[2:])}
	doc := b[versionSize:]
	if len(doc) == 0 {
		return v, nil
	}
	if doc[len(doc)-1] != 0 {
		return version{}, violation("version JSON without a NUL at its end")
	}
	var parsed versionJSON
	if err := json.Unmarshal(doc[:len(doc)-1], &parsed); err != nil {
		return version{}, violation("version JSON: %v", err)
	}
	v.hasJSON, v.caps = true, parsed.Capabilities
	return v, nil
}

// answer is the server's reply to the proposal v: of each member proposed, what
// we have. It is never longer than a proposal that QEMU sends, whose buffer for
// the reply is as long as its request.
func (v version) answer(dmaBase uint64, doorbells bool) version {
	r := version{major: ourMajor, minor: min(v.minor, ourMinor), hasJSON: v.hasJSON}
	p := v.caps
	r.caps = capabilities{
		MaxMsgFDs:       ours(p.MaxMsgFDs, maxFDs),
		MaxDataXferSize: ours(p.MaxDataXferSize, maxTransfer),
		MaxDMAMaps:      ours(p.MaxDMAMaps, maxMaps),
		PageSizes:       ours(p.PageSizes, pageSize),
		WriteMultiple:   ours(p.WriteMultiple, true),
		DMABase:         ours(p.DMABase, dmaBase),
	}
	if p.Doorbells != nil && *p.Doorbells && doorbells {
		r.caps.Doorbells = p.Doorbells
	}
	return r
}

// ours is our value of a member if the member was proposed.
func ours[T any](proposed *T, value T) *T {
	if proposed == nil {
		return nil
	}
	return &value
}

// limits are what the peer takes.
type limits struct {
	fds      int    // descriptors in one message
	transfer uint32 // data bytes in one region access
}

// limits of the side that sent c, with the protocol's defaults.
func (c capabilities) limits() limits {
	l := limits{fds: 1, transfer: maxTransfer}
	if c.MaxMsgFDs != nil {
		l.fds = int(min(*c.MaxMsgFDs, maxFDs))
	}
	if c.MaxDataXferSize != nil {
		l.transfer = min(*c.MaxDataXferSize, maxTransfer)
	}
	return l
}
