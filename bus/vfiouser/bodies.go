package vfiouser

// errShort: a body is shorter than its layout, or its argsz is.
var errShort = violation("body too short")

// dmaMap is the body of DMA_MAP. With a descriptor the range is mappable from
// offset of that file on.
type dmaMap struct {
	flags              uint32
	offset, addr, size uint64
}

const (
	dmaMapSize = 32

	dmaRead  uint32 = 1 << 0
	dmaWrite uint32 = 1 << 1
)

func (m dmaMap) append(b []byte) []byte {
	b = host.AppendUint32(b, dmaMapSize)
	b = host.AppendUint32(b, m.flags)
	b = host.AppendUint64(b, m.offset)
	b = host.AppendUint64(b, m.addr)
	return host.AppendUint64(b, m.size)
}

func parseDMAMap(b []byte) (dmaMap, error) {
	if len(b) < dmaMapSize || host.Uint32(b) < dmaMapSize {
		return dmaMap{}, errShort
	}
	return dmaMap{
		flags:  host.Uint32(b[4:]),
		offset: host.Uint64(b[8:]),
		addr:   host.Uint64(b[16:]),
		size:   host.Uint64(b[24:]),
	}, nil
}

// dmaUnmap is the body of DMA_UNMAP and of its reply.
type dmaUnmap struct {
	flags      uint32
	addr, size uint64
}

const (
	dmaUnmapSize = 24

	unmapAll uint32 = 1 << 1
)

func (u dmaUnmap) append(b []byte) []byte {
	b = host.AppendUint32(b, dmaUnmapSize)
	b = host.AppendUint32(b, u.flags)
	b = host.AppendUint64(b, u.addr)
	return host.AppendUint64(b, u.size)
}

func parseDMAUnmap(b []byte) (dmaUnmap, error) {
	if len(b) < dmaUnmapSize || host.Uint32(b) < dmaUnmapSize {
		return dmaUnmap{}, errShort
	}
	return dmaUnmap{
		flags: host.Uint32(b[4:]),
		addr:  host.Uint64(b[8:]),
		size:  host.Uint64(b[16:]),
	}, nil
}

// dmaAccess heads DMA_READ and DMA_WRITE and their replies; data follows. The
// count is 8 bytes, as libvfio-user and QEMU have it.
type dmaAccess struct {
	addr, count uint64
}

const dmaAccessSize = 16

func (a dmaAccess) append(b []byte) []byte {
	b = host.AppendUint64(b, a.addr)
	return host.AppendUint64(b, a.count)
}

func parseDMAAccess(b []byte) (dmaAccess, error) {
	if len(b) < dmaAccessSize {
		return dmaAccess{}, errShort
	}
	return dmaAccess{addr: host.Uint64(b), count: host.Uint64(b[8:])}, nil
}

// deviceInfo is the body of DEVICE_GET_INFO and its reply.
type deviceInfo struct {
	flags, regions, irqs uint32
}

const (
	deviceInfoSize = 16

	deviceReset uint32 = 1 << 0
	devicePCI   uint32 = 1 << 1
)

func (d deviceInfo) append(b []byte) []byte {
	b = host.AppendUint32(b, deviceInfoSize)
	b = host.AppendUint32(b, d.flags)
	b = host.AppendUint32(b, d.regions)
	return host.AppendUint32(b, d.irqs)
}

// parseDeviceInfo takes any argsz from 16 on: cloud-hypervisor counts the
// header, too.
func parseDeviceInfo(b []byte) (deviceInfo, error) {
	if len(b) < deviceInfoSize || host.Uint32(b) < deviceInfoSize {
		return deviceInfo{}, errShort
	}
	return deviceInfo{
		flags:   host.Uint32(b[4:]),
		regions: host.Uint32(b[8:]),
		irqs:    host.Uint32(b[12:]),
	}, nil
}

// ioFDs heads DEVICE_GET_REGION_IO_FDS and its reply; entries follow.
type ioFDs struct {
	argsz, flags, index, count uint32
}

const (
	ioFDsSize = 16
	// maxIOFDs bounds the entries a client takes: more than a doorbell page has.
	maxIOFDs = 2048
)

func (f ioFDs) append(b []byte) []byte {
	b = host.AppendUint32(b, f.argsz)
	b = host.AppendUint32(b, f.flags)
	b = host.AppendUint32(b, f.index)
	return host.AppendUint32(b, f.count)
}

func parseIOFDs(b []byte) (ioFDs, error) {
	if len(b) < ioFDsSize || host.Uint32(b) < ioFDsSize {
		return ioFDs{}, errShort
	}
	return ioFDs{host.Uint32(b), host.Uint32(b[4:]), host.Uint32(b[8:]), host.Uint32(b[12:])}, nil
}

// shadowFD is an entry of DEVICE_GET_REGION_IO_FDS: a register whose value is
// stored to shared memory before an eventfd is signalled. Entries are 48 bytes,
// as libvfio-user has them; the text says 40 and has no shadow.
type shadowFD struct {
	offset, size   uint64
	eventFD        uint32 // index into the message's descriptors
	kind           uint32
	memoryFD       uint32 // index into the message's descriptors
	memoryOffset   uint64
	flags          uint32
	datamatchValue uint64
}

const (
	shadowFDSize = 48

	kindShadowIOEventFD = 2
)

func (s shadowFD) append(b []byte) []byte {
	b = host.AppendUint64(b, s.offset)
	b = host.AppendUint64(b, s.size)
	b = host.AppendUint32(b, s.eventFD)
	b = host.AppendUint32(b, s.kind)
	b = host.AppendUint32(b, s.flags)
	b = host.AppendUint32(b, s.memoryFD)
	b = host.AppendUint64(b, s.memoryOffset)
	return host.AppendUint64(b, s.datamatchValue)
}

// parseShadowFDs returns the entries of the reply b, whose head is f.
func parseShadowFDs(b []byte, f ioFDs) ([]shadowFD, error) {
	if f.count > maxIOFDs || len(b) < ioFDsSize+int(f.count)*shadowFDSize {
		return nil, violation("%d descriptor entries in %d bytes", f.count, len(b))
	}
	entries := make([]shadowFD, f.count)
	for i := range entries {
		e := b[ioFDsSize+i*shadowFDSize:]
		entries[i] = shadowFD{
			offset: host.Uint64(e), size: host.Uint64(e[8:]),
			eventFD: host.Uint32(e[16:]), kind: host.Uint32(e[20:]), flags: host.Uint32(e[24:]),
			memoryFD: host.Uint32(e[28:]), memoryOffset: host.Uint64(e[32:]),
			datamatchValue: host.Uint64(e[40:]),
		}
	}
	return entries, nil
}

// irqInfo is the body of DEVICE_GET_IRQ_INFO and its reply.
type irqInfo struct {
	flags, index, count uint32
}

const (
	irqInfoSize = 16

	irqEventFD  uint32 = 1 << 0
	irqNoResize uint32 = 1 << 3
)

// IRQ indices beyond bus.InterruptKind's.
const (
	irqError   = 3
	irqRequest = 4
)

func (i irqInfo) append(b []byte) []byte {
	b = host.AppendUint32(b, irqInfoSize)
	b = host.AppendUint32(b, i.flags)
	b = host.AppendUint32(b, i.index)
	return host.AppendUint32(b, i.count)
}

func parseIRQInfo(b []byte) (irqInfo, error) {
	if len(b) < irqInfoSize || host.Uint32(b) < irqInfoSize {
		return irqInfo{}, errShort
	}
	return irqInfo{host.Uint32(b[4:]), host.Uint32(b[8:]), host.Uint32(b[12:])}, nil
}

// setIRQs is the body of DEVICE_SET_IRQS. Eventfds travel as the message's
// descriptors, unlike the ioctl's; data is one byte a vector for irqDataBool.
type setIRQs struct {
	flags, index, start, count uint32
	data                       []byte
}

const (
	setIRQsSize = 20

	irqDataNone    uint32 = 1 << 0
	irqDataBool    uint32 = 1 << 1
	irqDataEventFD uint32 = 1 << 2
	irqDataMask           = irqDataNone | irqDataBool | irqDataEventFD

	irqMask       uint32 = 1 << 3
	irqUnmask     uint32 = 1 << 4
	irqTrigger    uint32 = 1 << 5
	irqActionMask        = irqMask | irqUnmask | irqTrigger
)

func (s setIRQs) append(b []byte) []byte {
	b = host.AppendUint32(b, setIRQsSize+uint32(len(s.data)))
	b = host.AppendUint32(b, s.flags)
	b = host.AppendUint32(b, s.index)
	b = host.AppendUint32(b, s.start)
	b = host.AppendUint32(b, s.count)
	return append(b, s.data...)
}

func parseSetIRQs(b []byte) (setIRQs, error) {
	if len(b) < setIRQsSize || host.Uint32(b) < setIRQsSize {
		return setIRQs{}, errShort
	}
	return setIRQs{
		flags: host.Uint32(b[4:]),
		index: host.Uint32(b[8:]),
		start: host.Uint32(b[12:]),
		count: host.Uint32(b[16:]),
		data:  b[setIRQsSize:],
	}, nil
}

// regionAccess heads REGION_READ and REGION_WRITE and their replies; data
// follows where there is any.
type regionAccess struct {
	offset        uint64
	region, count uint32
}

const regionAccessSize = 16

func (a regionAccess) append(b []byte) []byte {
	b = host.AppendUint64(b, a.offset)
	b = host.AppendUint32(b, a.region)
	return host.AppendUint32(b, a.count)
}

func parseRegionAccess(b []byte) (regionAccess, error) {
	if len(b) < regionAccessSize {
		return regionAccess{}, errShort
	}
	return regionAccess{host.Uint64(b), host.Uint32(b[8:]), host.Uint32(b[12:])}, nil
}

// REGION_WRITE_MULTI: a count u64 and that many entries of offset u64, region
// u32, count u32 and 8 data bytes. The reply is the count.
const (
	writeManySize      = 8
	writeManyEntrySize = 24
	writeManyDataSize  = 8
)
