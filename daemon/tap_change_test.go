package daemon

import (
	"crypto/rand"
	"io"
	"strconv"
	"testing"
	"time"

	"nicd/internal/testns"
	"nicd/port/tap"
	"nicd/proto/adminpb"
)

// What changes under the kernel's TCP while it runs: no connection is lost, no
// byte is another, and the Linux interface follows.
func TestTAPChanges(t *testing.T) {
	testns.NeedTAP(t)
	left, right := testns.LinkName(), testns.LinkName()
	d := startTest(t, inProcess+nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(left))+nicText("b", "vmxnet3", vmxnet3Model(3), "", tapText(right)))
	a, b := namespaces(t, left, right)
	listener := b.Listen(t, "10.77.0.2:0")
	c, err := a.Dial(listener.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	go func() { _, _ = io.Copy(peer, peer) }() // what arrives comes back
	sent, back := make([]byte, 1<<20), make([]byte, 1<<20)
	goesOn := func(after string) {
		t.Helper()
		_, _ = rand.Read(sent)
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			written <- err
		}()
		if _, err := io.ReadFull(c, back); err != nil || string(back) != string(sent) {
			t.Fatalf("after %s: %v, same %v", after, err, string(back) == string(sent))
		}
		if err := <-written; err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
	}
	goesOn("the start")
	admin := &adminServer{daemon: d}
	for _, s := range [][2]string{
		{"mtu", "9000"}, {"queues", "1"}, {"tso", "off"}, {"lro", "off"}, {"queues", "2"}, {"lro", "on"}, {"tx-csum", "off"},
		{"mtu", "1500"}, {"tx-csum", "on"}, {"tso", "on"}, {"rx-csum", "off"}, {"lro", "software"}, {"rx-csum", "on"},
	} {
		for _, name := range []string{"a", "b"} {
			_, err := admin.SetInterface(t.Context(), &adminpb.SetInterfaceRequest{Name: name, Settings: []*adminpb.Setting{{Name: s[0], Value: s[1]}}})
			if err != nil {
				t.Fatalf("%s %s=%s: %v", name, s[0], s[1], err)
			}
		}
		goesOn(s[0] + "=" + s[1])
		if mtu := a.Link(t, left).Attrs().MTU; s[0] == "mtu" && strconv.Itoa(mtu) != s[1] {
			t.Errorf("the Linux interface's MTU is %d, not %s", mtu, s[1])
		}
	}
	for _, name := range []string{"a", "b"} {
		if s := d.find(name).port.(*tap.Port).Stats(); s.UpRefused+s.UpGone+s.UpOpaque+s.DownNonsense != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
