package vfio

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unsafe"

	"nicd/bus"
)

// Sizes and offsets are those of linux/vfio.h and linux/iommufd.h; numbers are
// what their _IO macros come to.

func TestLayouts(t *testing.T) {
	var (
		irq    irqSet
		mapDMA dmaMap
		undma  dmaUnmap
		bind   bindIOMMUFD
		attach attachPT
		alloc  ioasAlloc
		iomap  ioasMap
		iounm  ioasUnmap
		dev    deviceInfo
		info   irqInfo
		group  groupStatus
	)
	for what, c := range map[string][2]uintptr{
		"vfio_group_status":                  {unsafe.Sizeof(group), 8},
		"vfio_group_status.flags":            {unsafe.Offsetof(group.flags), 4},
		"vfio_device_info":                   {unsafe.Sizeof(dev), 16},
		"vfio_device_info.num_regions":       {unsafe.Offsetof(dev.regions), 8},
		"vfio_device_info.num_irqs":          {unsafe.Offsetof(dev.irqs), 12},
		"vfio_irq_info":                      {unsafe.Sizeof(info), 16},
		"vfio_irq_info.index":                {unsafe.Offsetof(info.index), 8},
		"vfio_irq_info.count":                {unsafe.Offsetof(info.count), 12},
		"vfio_irq_set":                       {unsafe.Sizeof(irq), 20},
		"vfio_irq_set.index":                 {unsafe.Offsetof(irq.index), 8},
		"vfio_irq_set.count":                 {unsafe.Offsetof(irq.count), 16},
		"vfio_iommu_type1_dma_map":           {unsafe.Sizeof(mapDMA), 32},
		"vfio_iommu_type1_dma_map.vaddr":     {unsafe.Offsetof(mapDMA.vaddr), 8},
		"vfio_iommu_type1_dma_map.iova":      {unsafe.Offsetof(mapDMA.iova), 16},
		"vfio_iommu_type1_dma_map.size":      {unsafe.Offsetof(mapDMA.size), 24},
		"vfio_iommu_type1_dma_unmap":         {unsafe.Sizeof(undma), 24},
		"vfio_iommu_type1_dma_unmap.size":    {unsafe.Offsetof(undma.size), 16},
		"vfio_device_bind_iommufd":           {unsafe.Sizeof(bind), 16},
		"vfio_device_bind_iommufd.iommufd":   {unsafe.Offsetof(bind.iommufd), 8},
		"vfio_device_bind_iommufd.out_devid": {unsafe.Offsetof(bind.device), 12},
		"vfio_device_attach_iommufd_pt":      {unsafe.Sizeof(attach), 12},
		"vfio_device_attach_iommufd_pt.pt":   {unsafe.Offsetof(attach.pt), 8},
		"iommu_ioas_alloc":                   {unsafe.Sizeof(alloc), 12},
		"iommu_ioas_alloc.out_ioas_id":       {unsafe.Offsetof(alloc.ioas), 8},
		"iommu_ioas_map":                     {unsafe.Sizeof(iomap), 40},
		"iommu_ioas_map.ioas_id":             {unsafe.Offsetof(iomap.ioas), 8},
		"iommu_ioas_map.user_va":             {unsafe.Offsetof(iomap.vaddr), 16},
		"iommu_ioas_map.length":              {unsafe.Offsetof(iomap.length), 24},
		"iommu_ioas_map.iova":                {unsafe.Offsetof(iomap.iova), 32},
		"iommu_ioas_unmap":                   {unsafe.Sizeof(iounm), 24},
		"iommu_ioas_unmap.ioas_id":           {unsafe.Offsetof(iounm.ioas), 4},
		"iommu_ioas_unmap.iova":              {unsafe.Offsetof(iounm.iova), 8},
		"iommu_ioas_unmap.length":            {unsafe.Offsetof(iounm.length), 16},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %d, want %d", what, c[0], c[1])
		}
	}
}

func TestRequestNumbers(t *testing.T) {
	for what, c := range map[string][2]int{
		"VFIO_GET_API_VERSION":          {reqGetAPIVersion, 0x3b64},
		"VFIO_CHECK_EXTENSION":          {reqCheckExtension, 0x3b65},
		"VFIO_SET_IOMMU":                {reqSetIOMMU, 0x3b66},
		"VFIO_GROUP_GET_STATUS":         {reqGroupGetStatus, 0x3b67},
		"VFIO_GROUP_SET_CONTAINER":      {reqGroupSetContainer, 0x3b68},
		"VFIO_GROUP_GET_DEVICE_FD":      {reqGroupGetDeviceFD, 0x3b6a},
		"VFIO_DEVICE_GET_INFO":          {reqDeviceGetInfo, 0x3b6b},
		"VFIO_DEVICE_GET_REGION_INFO":   {reqDeviceGetRegion, 0x3b6c},
		"VFIO_DEVICE_GET_IRQ_INFO":      {reqDeviceGetIRQ, 0x3b6d},
		"VFIO_DEVICE_SET_IRQS":          {reqDeviceSetIRQs, 0x3b6e},
		"VFIO_DEVICE_RESET":             {reqDeviceReset, 0x3b6f},
		"VFIO_IOMMU_MAP_DMA":            {reqMapDMA, 0x3b71},
		"VFIO_IOMMU_UNMAP_DMA":          {reqUnmapDMA, 0x3b72},
		"VFIO_DEVICE_BIND_IOMMUFD":      {reqDeviceBindIOMMUFD, 0x3b76},
		"VFIO_DEVICE_ATTACH_IOMMUFD_PT": {reqDeviceAttachPT, 0x3b77},
		"IOMMU_IOAS_ALLOC":              {reqIOASAlloc, 0x3b81},
		"IOMMU_IOAS_MAP":                {reqIOASMap, 0x3b85},
		"IOMMU_IOAS_UNMAP":              {reqIOASUnmap, 0x3b86},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %#x, want %#x", what, c[0], c[1])
		}
	}
}

func TestIRQSetCarriesDescriptors(t *testing.T) {
	e, err := bus.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	fd := uint32(e.File().Fd())
	got := irqSet{flags: 0x24, index: 2, start: 3, count: 2}.append(nil, []*bus.Event{e, e})
	var want []byte
	for _, v := range []uint32{28, 0x24, 2, 3, 2, fd, fd} {
		want = binary.NativeEndian.AppendUint32(want, v)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}
