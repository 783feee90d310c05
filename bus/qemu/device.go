package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"nicd/bus"
)

// DefaultProgram is the QEMU that is used if Options names no other.
const DefaultProgram = "qemu-system-x86_64"

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 20 * time.Second

// ErrNoProgram: there is no QEMU on this machine, or not where it was said to be.
var ErrNoProgram = errors.New("QEMU is not installed")

// Options are a device's settings. Model is needed.
type Options struct {
	// Name is what messages call the device: "vmx0" makes the address "qemu:vmx0".
	Name string
	// Model is one of Models.
	Model string
	// MAC is the permanent address; zero leaves it to QEMU.
	MAC [6]byte
	// Netdev is what the device is connected to; nil is nothing.
	Netdev Netdev
	// Program is the QEMU to run, DefaultProgram if empty.
	Program string
	// Timeout is how long QEMU may take to answer, DefaultTimeout if zero. One that
	// takes longer is ended.
	Timeout time.Duration
	// Report, if set, is told why QEMU has ended, if it was not by Close. It is
	// called once, on a goroutine of its own, and must not call Close.
	Report func(error)
}

// Device is a device model in a QEMU of its own, a bus.Device.
//
// QEMU's end makes the device one that is gone: registers read all ones, calls
// return bus.ErrGone. Reset is a reset of QEMU's whole machine.
type Device struct {
	opt     Options
	model   *model
	info    bus.Info
	version Version
	process *process
	qtest   *qtest
	qmp     *qmp
	ivshmem *ivshmem
	resets  chan struct{} // of the machine, that are done

	nic, doorbell function
	config        *configSpace
	regions       [bus.NumRegions]bus.Region
	messages      messages
	irq           interrupts
	kind          bus.InterruptKind // what SetInterrupts asked for
	vectors       int
	maps          [maxMaps]mapping

	all     sync.WaitGroup
	started atomic.Bool
	closing atomic.Bool
	hung    atomic.Bool
	reason  atomic.Pointer[error] // why QEMU was ended, if it said what makes no sense
	end     sync.Once
}

// Slots of the machine's first bus.
const (
	slotNIC      = 1
	slotDoorbell = 2
)

// Start starts a QEMU and gives its device. ctx is for the start only.
func Start(ctx context.Context, o Options) (*Device, error) {
	d, err := start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("qemu:%s: %w", o.Name, err)
	}
	return d, nil
}

func start(ctx context.Context, o Options) (*Device, error) {
	m, err := modelOf(o.Model)
	if err != nil {
		return nil, err
	}
	if o.Program == "" {
		o.Program = DefaultProgram
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	program, err := exec.LookPath(o.Program)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	d := &Device{opt: o, model: m, resets: make(chan struct{}, 1)}
	if err := d.launch(program); err != nil {
		return nil, err
	}
	if err := d.open(ctx); err != nil {
		d.Close()
		if errors.Is(err, bus.ErrGone) { // the process knows better why
			err = fmt.Errorf("QEMU ended: %w", d.process.err)
		}
		return nil, err
	}
	d.started.Store(true)
	return d, nil
}

// launch starts the process and the goroutines that listen to it.
func (d *Device) launch(program string) (err error) {
	var theirs inheritance
	defer theirs.close()
	var ours [3]*net.UnixConn
	defer func() {
		for _, c := range ours {
			if err != nil && c != nil {
				c.Close()
			}
		}
	}()
	var fds [len(ours)]int
	for i := range ours {
		conn, file, err := newPair()
		if err != nil {
			return err
		}
		ours[i], fds[i] = conn, theirs.give(file)
	}
	bios, err := newBIOS()
	if err != nil {
		return err
	}
	args := append(machine(theirs.give(bios), fds, max(d.model.vectors, 1)), d.opt.nic(d.model, &theirs)...)
	if d.ivshmem, err = newIvshmem(ours[2], d.model.vectors); err != nil {
		return err
	}
	if err = d.ivshmem.introduce(); err == nil {
		d.process, err = startProcess(program, args, theirs.files)
	}
	if err != nil {
		d.ivshmem.close()
		return err
	}
	d.listen(ours[0], ours[1])
	return nil
}

// machine is the command line but for the device under test; bios and conns (for
// qtest, QMP and ivshmem) are descriptors.
func machine(bios int, conns [3]int, vectors int) []string {
	socket := func(id string, fd int) string { return fmt.Sprintf("socket,id=%s,fd=%d", id, fd) }
	return []string{
		"-machine", "q35,accel=tcg,sata=off,smbus=off,usb=off,vmport=off,hpet=off",
		"-m", fmt.Sprintf("size=%dM,slots=%d,maxmem=%s", machineRAM>>20, maxMaps, maxMemory),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-bios", fmt.Sprintf("/proc/self/fd/%d", bios),
		"-chardev", socket("qtest", conns[0]), "-qtest", "chardev:qtest", "-qtest-log", "none",
		"-chardev", socket("qmp", conns[1]), "-mon", "chardev=qmp,mode=control",
		"-chardev", socket("ivshmem", conns[2]),
		"-device", fmt.Sprintf("ivshmem-doorbell,chardev=ivshmem,vectors=%d,addr=%#x", vectors, slotDoorbell),
	}
}

const netdevID = "net0"

// nic is the rest of the command line.
func (o *Options) nic(m *model, f *inheritance) []string {
	device := fmt.Sprintf("%s,addr=%#x", m.device, slotNIC)
	if o.MAC != [6]byte{} {
		device += ",mac=" + net.HardwareAddr(o.MAC[:]).String()
	}
	if o.Netdev == nil {
		return []string{"-device", device}
	}
	return []string{"-netdev", o.Netdev.option(f) + ",id=" + netdevID, "-device", device + ",netdev=" + netdevID}
}

// listen takes what QEMU says until it ends.
func (d *Device) listen(qtestConn, qmpConn *net.UnixConn) {
	d.qtest = newQtest(qtestConn, d.irq.line, d.opt.Timeout, func() {
		d.hung.Store(true)
		d.process.kill()
	})
	d.qmp = newQMP(qmpConn, func(event string) {
		if event == "RESET" {
			select {
			case d.resets <- struct{}{}:
			default:
			}
		}
	})
	d.all.Go(func() { d.serve("qtest", d.qtest.serve) })
	d.all.Go(func() { d.serve("QMP", d.qmp.serve) })
	d.all.Go(d.watch)
	for v, e := range d.ivshmem.events {
		d.all.Go(func() { d.relay(v, e) })
	}
}

// serve ends QEMU if it says what makes no sense, and when it does not answer any
// more.
func (d *Device) serve(what string, serve func() error) {
	err := serve()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("%s: %w", what, err)
		d.reason.CompareAndSwap(nil, &err)
	}
	d.process.kill()
}

// watch reports QEMU's end.
func (d *Device) watch() {
	<-d.process.ended
	if d.closing.Load() || !d.started.Load() || d.opt.Report == nil {
		return
	}
	err := d.process.err
	if r := d.reason.Load(); r != nil {
		err = *r
	}
	if d.hung.Load() {
		err = fmt.Errorf("no answer for %v", d.opt.Timeout)
	}
	d.opt.Report(fmt.Errorf("%s: %w: QEMU ended: %w", d.info.Address, bus.ErrGone, err))
}

// open waits for the machine and sets it up.
func (d *Device) open(ctx context.Context) (err error) {
	if d.version, err = d.qmp.greet(ctx); err != nil {
		return err
	}
	d.qtest.interceptIOAPIC()
	d.nic = function{qtest: d.qtest, slot: slotNIC}
	d.doorbell = function{qtest: d.qtest, slot: slotDoorbell}
	openConfigSpace(d.qtest)
	free := space{memory: memoryBase, io: ioBase}
	for _, f := range []*function{&d.nic, &d.doorbell} {
		f.measure(&free)
		f.place()
	}
	d.find()
	d.config = newConfigSpace(&d.nic, d.messages.msi, d.messages.msix)
	return d.gone()
}

// find finds out what the device is.
func (d *Device) find() {
	f, m := &d.nic, &d.messages
	id := f.read(configID, 4)
	d.info = bus.Info{
		Address: "qemu:" + d.opt.Name, Vendor: uint16(id), Device: uint16(id >> 16),
		Revision: uint8(f.read(configRevision, 1)), CanReset: true, DMABase: DMABase,
	}
	for i, b := range f.bars {
		if b.size > 0 {
			d.regions[i] = &region{qtest: d.qtest, bar: b}
		}
	}
	if f.read(configPin, 1) != 0 {
		d.info.Vectors[bus.INTx] = 1
	}
	if m.msi = f.capability(capabilityMSI); m.msi != 0 && d.model.vectors > 0 {
		d.info.Vectors[bus.MSI] = 1
	}
	if m.msix = f.capability(capabilityMSIX); m.msix == 0 {
		return
	}
	m.vectors = int(f.read(m.msix+msiControl, 2)&msixCount) + 1
	table := f.read(m.msix+msixTable, 4)
	m.table, _ = d.regions[table&msixBAR].(*region)
	if m.table == nil {
		return
	}
	m.offset = table &^ msixBAR
	m.table.table = span{m.offset, m.offset + msixEntry*uint32(m.vectors)}
	d.info.Vectors[bus.MSIX] = min(m.vectors, d.model.vectors)
}

// Info implements bus.Device.
func (d *Device) Info() bus.Info { return d.info }

// Version is QEMU's.
func (d *Device) Version() Version { return d.version }

// CutsWrongly tells whether this QEMU makes IP fragments, and not TCP segments, of
// TSO frames that the device is given: it must not be asked to cut.
func (d *Device) CutsWrongly() bool {
	return d.model.cutsWrongly && d.version.Major < 8 && (d.opt.Netdev == nil || !d.opt.Netdev.whole())
}

// SetLink takes the device's link down or up again. Any goroutine may call it.
func (d *Device) SetLink(ctx context.Context, up bool) error {
	err := d.qmp.run(ctx, "set_link", qmpArguments{"name": netdevID, "up": up}, nil)
	if err != nil {
		return fmt.Errorf("%s: link: %w", d.info.Address, err)
	}
	return nil
}

// Reset implements bus.Device: a reset of the machine, after which configuration
// space is as it was.
func (d *Device) Reset(ctx context.Context) error {
	if err := d.gone(); err != nil {
		return err
	}
	command := d.nic.read(configCommand, 2)
	select {
	case <-d.resets: // that nobody waited for
	default:
	}
	if err := d.qmp.run(ctx, "system_reset", nil, nil); err != nil {
		return fmt.Errorf("%s: reset: %w", d.info.Address, err)
	}
	select {
	case <-d.resets:
	case <-d.qmp.dead:
		return d.gone()
	case <-ctx.Done():
		return fmt.Errorf("%s: reset: %w", d.info.Address, ctx.Err())
	}
	openConfigSpace(d.qtest)
	d.nic.place()
	d.doorbell.place()
	d.nic.write(configCommand, 2, command)
	d.enableMessages(d.kind, d.vectors)
	return d.gone()
}

// Kill ends QEMU as a crash of it would: the device is gone when it returns, which
// is reported. Close is still to be called.
func (d *Device) Kill() {
	d.process.kill()
	<-d.process.ended
	<-d.qtest.dead
	<-d.qmp.dead
}

// Close ends QEMU. Nothing of it is left when it returns.
func (d *Device) Close() error {
	d.end.Do(func() {
		d.closing.Store(true)
		d.process.kill()
		<-d.process.ended
		d.qtest.conn.Close()
		d.qmp.close()
		d.ivshmem.close()
		d.all.Wait()
	})
	return nil
}
