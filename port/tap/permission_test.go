package tap_test

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nicd/framework"
	"nicd/internal/testns"
	"nicd/port/tap"
)

// A Linux interface that can't be made, for want of the kernel's device or of the
// permission, is one line that says which.
func TestNoPermission(t *testing.T) {
	testns.NeedTAP(t)
	const nobody, tun = 65534, "/dev/net/tun"
	for _, c := range []struct {
		name  string
		begin func() error // on a thread with a /dev/net of its own, empty
		want  string
	}{
		{"no device", func() error { return nil }, "there is no " + tun + ": load the kernel's tun module"},
		{"not to be opened", func() error {
			if err := makeTUN(tun, 0o600); err != nil {
				return err
			}
			_, err := unix.SetfsuidRetUid(nobody)
			return err
		}, "no permission to open " + tun},
		{"without CAP_NET_ADMIN", func() error {
			if err := makeTUN(tun, 0o666); err != nil {
				return err
			}
			return dropNetAdmin()
		}, "no permission to make the interface"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var prepared, err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // and ends with it
				if prepared = ownDevNet(); prepared == nil {
					prepared = c.begin()
				}
				if prepared != nil {
					return
				}
				var p *tap.Port
				if p, err = tap.New(tap.Options{Name: testns.LinkName()}); err == nil {
					p.Close()
				}
			}()
			<-done
			if prepared != nil {
				testns.Unavailable(t, "a thread without the right to make TAP devices: "+prepared.Error())
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// Who may not set the MTU of a Linux interface that was handed over can go on with one
// that is not larger than its own, and is told of any other.
func TestMTUOfSomebodyElse(t *testing.T) {
	testns.NeedTAP(t)
	below, name := newNIC(1), testns.LinkName()
	result := make(map[int]error)
	var prepared error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and ends with it
		fd, err := handOver(name)
		if err != nil {
			prepared = err
			return
		}
		if prepared = dropNetAdmin(); prepared != nil {
			unix.Close(fd)
			return
		}
		below.set(func(s *framework.Settings) { s.MTU = 1500 }) // what a new one has
		p, err := tap.New(tap.Options{FDs: []int{fd}})
		if err != nil {
			prepared = err
			return
		}
		defer p.Close()
		result[1500] = p.Attach(below)
		for _, mtu := range []int{9000, 1000} {
			below.set(func(s *framework.Settings) { s.MTU = mtu })
			result[mtu] = p.SettingsChanged()
		}
	}()
	<-done
	if prepared != nil {
		testns.Unavailable(t, "a queue without the right to make TAP devices: "+prepared.Error())
	}
	if result[1500] != nil || result[9000] != nil {
		t.Errorf("MTUs that it can have: %v, %v", result[1500], result[9000])
	}
	if err, want := result[1000], name+": mtu 1000: operation not permitted"; err == nil || err.Error() != want {
		t.Errorf("a smaller one: %v, want %s", err, want)
	}
}

// handOver makes a TAP device with one queue, as somebody else would.
func handOver(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// ownDevNet gives the thread an empty /dev/net that nobody else sees.
func ownDevNet() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("none", "/dev/net", "tmpfs", 0, "")
}

// makeTUN makes the kernel's TAP device, which is 10:200 of
// Documentation/admin-guide/devices.txt.
func makeTUN(path string, mode uint32) error {
	if err := unix.Mknod(path, unix.S_IFCHR|mode, int(unix.Mkdev(10, 200))); err != nil {
		return err
	}
	return unix.Chmod(path, mode)
}

// dropNetAdmin takes CAP_NET_ADMIN from the thread.
func dropNetAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	return unix.Capset(&header, &sets[0])
}
