package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"nicd/bus"
)

// DefaultProgram is the QEMU that is used if BusOptions names no other.
const DefaultProgram = "qemu-system-x86_64"

// DefaultTimeout is the default of BusOptions.Timeout.
const DefaultTimeout = 20 * time.Second

// MaxDevices is how many devices a bus has at most: the machine has four interrupt
// lines for its slots, and each device gets one for itself.
const MaxDevices = 4

// ErrNoProgram: there is no QEMU on this machine, or not where it was said to be.
var ErrNoProgram = errors.New("QEMU is not installed")

// BusOptions are a bus's settings. Devices is needed.
type BusOptions struct {
	// Name is what messages call the bus: "lab" makes the device "a" of it
	// "qemu:lab/a", and none makes it "qemu:a".
	Name string
	// Devices are 1 to MaxDevices.
	Devices []DeviceOptions
	// Program is the QEMU to run, DefaultProgram if empty.
	Program string
	// Timeout is how long QEMU may take to answer, DefaultTimeout if zero. One that
	// takes longer is ended.
	Timeout time.Duration
	// Report, if set, is told why QEMU has ended, if it was not by Close. It is
	// called once, on a goroutine of its own, and must not call Close.
	Report func(error)
}

// DeviceOptions are the settings of one of a bus's devices. Model is needed.
type DeviceOptions struct {
	// Name is what messages call the device.
	Name string
	// Model is one of Models, or another of QEMU's, see OtherModel.
	Model string
	// MAC is the permanent address; zero leaves it to QEMU.
	MAC [6]byte
	// Netdev is what the device is connected to; nil is nothing.
	Netdev Netdev
}

// Bus is a QEMU and the devices in it. Each device may be used by a goroutine of
// its own. They are in one machine without an IOMMU: a device can be made to reach
// the memory that is mapped for another.
//
// QEMU's end makes them all devices that are gone.
type Bus struct {
	opt     BusOptions
	name    string // for messages
	version Version
	process *process
	qtest   *qtest
	qmp     *qmp
	ivshmem *ivshmem
	devices []*Device

	doorbell function
	modules  modules

	all     sync.WaitGroup
	started atomic.Bool
	closing atomic.Bool
	hung    atomic.Bool
	reason  atomic.Pointer[error] // why QEMU was ended, if it said what makes no sense
	end     sync.Once
}

// StartBus starts a QEMU with the devices. ctx is for the start only.
func StartBus(ctx context.Context, o BusOptions) (*Bus, error) {
	b := &Bus{opt: o, name: "qemu:" + o.Name}
	if o.Name == "" && len(o.Devices) == 1 {
		b.name += o.Devices[0].Name
	}
	if err := b.start(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	return b, nil
}

func (b *Bus) start(ctx context.Context) error {
	if b.opt.Timeout == 0 {
		b.opt.Timeout = DefaultTimeout
	}
	if err := b.plan(); err != nil {
		return err
	}
	program := b.opt.Program
	if program == "" {
		program = DefaultProgram
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	if err := b.launch(path); err != nil {
		return err
	}
	if err := b.open(ctx); err != nil {
		b.Close()
		if errors.Is(err, bus.ErrGone) { // the process knows better why
			err = fmt.Errorf("QEMU ended: %w", b.process.err)
		}
		return err
	}
	b.started.Store(true)
	return nil
}

// plan decides where each device is and which of ivshmem's vectors it gets.
func (b *Bus) plan() error {
	if n := len(b.opt.Devices); n == 0 || n > MaxDevices {
		return fmt.Errorf("%d devices: a bus has 1 to %d", n, MaxDevices)
	}
	vectors := 0
	for i, o := range b.opt.Devices {
		m, err := modelOf(o.Model)
		if err != nil {
			return err
		}
		d := b.newDevice(i, m, o)
		d.firstVector = vectors
		vectors += m.vectors
		b.devices = append(b.devices, d)
	}
	return nil
}

// vectors is how many message interrupts all devices have.
func (b *Bus) vectors() int {
	last := b.devices[len(b.devices)-1]
	return last.firstVector + last.model.vectors
}

// launch starts the process and the goroutines that listen to it.
func (b *Bus) launch(program string) (err error) {
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
	args := machine(theirs.give(bios), fds, max(b.vectors(), 1))
	for _, d := range b.devices {
		args = append(args, d.arguments(&theirs)...)
	}
	if b.ivshmem, err = newIvshmem(ours[2], b.vectors()); err != nil {
		return err
	}
	if err = b.ivshmem.introduce(); err == nil {
		b.process, err = startProcess(program, args, theirs.files)
	}
	if err != nil {
		b.ivshmem.close()
		return err
	}
	b.listen(ours[0], ours[1])
	return nil
}

// machine is the command line but for the devices under test; bios and conns (for
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

// listen takes what QEMU says until it ends.
func (b *Bus) listen(qtestConn, qmpConn *net.UnixConn) {
	b.qtest = newQtest(qtestConn, b.line, b.opt.Timeout, func() {
		b.hung.Store(true)
		b.process.kill()
	})
	b.qmp = newQMP(qmpConn)
	b.all.Go(func() { b.serve("qtest", b.qtest.serve) })
	b.all.Go(func() { b.serve("QMP", b.qmp.serve) })
	b.all.Go(b.watch)
	for _, d := range b.devices {
		for v := range d.model.vectors {
			b.all.Go(func() { d.relay(v, b.ivshmem.events[d.firstVector+v]) })
		}
	}
}

// line takes a change of one of the interrupt controller's inputs.
func (b *Bus) line(n int, raised bool) {
	for _, d := range b.devices {
		if n == d.port.line() {
			d.irq.setLine(raised)
		}
	}
}

// serve ends QEMU if it says what makes no sense, and when it does not answer any
// more. A connection that just ended is reset if QEMU left something unread.
func (b *Bus) serve(what string, serve func() error) {
	err := serve()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) {
		err = fmt.Errorf("%s: %w", what, err)
		b.reason.CompareAndSwap(nil, &err)
	}
	b.process.kill()
}

// watch reports QEMU's end.
func (b *Bus) watch() {
	<-b.process.ended
	if b.closing.Load() || !b.started.Load() || b.opt.Report == nil {
		return
	}
	err := b.process.err
	if r := b.reason.Load(); r != nil {
		err = *r
	}
	if b.hung.Load() {
		err = fmt.Errorf("no answer for %v", b.opt.Timeout)
	}
	b.opt.Report(fmt.Errorf("%s: %w: QEMU ended: %w", b.name, bus.ErrGone, err))
}

// open waits for the machine and sets it up.
func (b *Bus) open(ctx context.Context) (err error) {
	if b.version, err = b.qmp.greet(ctx); err != nil {
		return err
	}
	b.qtest.interceptIOAPIC()
	b.doorbell = function{qtest: b.qtest, slot: slotDoorbell}
	openConfigSpace(b.qtest)
	b.doorbell.measure(&space{memory: doorbellMemory})
	b.doorbell.place()
	for _, d := range b.devices {
		d.open()
	}
	return b.gone()
}

// gone is an error once QEMU has ended.
func (b *Bus) gone() error {
	select {
	case <-b.qtest.dead:
		return fmt.Errorf("%s: %w", b.name, bus.ErrGone)
	default:
		return nil
	}
}

// Device is the device of a name, nil if there is none.
func (b *Bus) Device(name string) *Device {
	for _, d := range b.devices {
		if d.opt.Name == name {
			return d
		}
	}
	return nil
}

// Kill ends QEMU as a crash of it would: the devices are gone when it returns,
// which is reported. Close is still to be called.
func (b *Bus) Kill() {
	b.process.kill()
	<-b.process.ended
	<-b.qtest.dead
	<-b.qmp.dead
}

// Close ends QEMU and with it all devices. Nothing of it is left when it returns.
func (b *Bus) Close() error {
	b.end.Do(func() {
		b.closing.Store(true)
		b.process.kill()
		<-b.process.ended
		b.qtest.conn.Close()
		b.qmp.close()
		b.ivshmem.close()
		b.all.Wait()
	})
	return nil
}

// address is what messages call a device.
func (o *BusOptions) address(d *DeviceOptions) string {
	return "qemu:" + strings.TrimPrefix(o.Name+"/"+d.Name, "/")
}
