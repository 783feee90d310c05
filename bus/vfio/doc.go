// Package vfio reaches a real PCI device through Linux VFIO, with an IOMMU
// between the device and everything that was not mapped for it.
//
// What lives here: finding PCI devices and moving them between drivers in sysfs
// ([List], [Bind], [Unbind]), opening one ([Open]), and the bus.Device on top of
// the opened descriptors ([New]). Opening needs access to /dev/vfio; using the
// descriptors needs none, so nicd opens a device and gives the [Handle]'s
// descriptors to the driver's process. That process needs RLIMIT_MEMLOCK for what
// it maps.
//
// There are two ways in, and Open takes the first that the kernel has: the
// device's own character device with iommufd (Linux 6.6 and later), or the group
// and a type-1 container. Without an IOMMU a device can write to all of memory;
// Open refuses it, and [Host.OpenUnsafe] is for who accepts that. Its memory is
// physical then and has to be in one piece ([Host.NewContiguous]).
//
// What can be tested without a device is: the layouts and numbers of the
// kernel's interface, sysfs on a made-up tree, region descriptions. TestHardware
// takes real NICs; the guest's test runs it on vmxnet3 and e1000e behind QEMU's
// intel-iommu (Debian 12's Linux 6.1, QEMU 7.2): registers, MSI-X, INTx, DMA, reset,
// and opening 20 times over.
//
// No kernel of Debian's has iommufd or the mode without an IOMMU: CONFIG_IOMMUFD
// and CONFIG_VFIO_NOIOMMU are not set in 6.1 (Debian 12), in 6.12.117 (Debian 13)
// nor in 7.3.4 (its backports), and VFIO_DEVICE_CDEV depends on the former. Both
// are tested in a guest with a kernel built for it (guest/kernel; make
// test-guest-kernel): nicd's drivers move data by way of iommufd while there is
// no other way in, and through devices without an IOMMU.
package vfio
