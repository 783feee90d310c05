package sim

// AcrossPages tells whether n bytes at device address addr, which are not none, lie
// in more than one page of 4 KiB. To a device behind an IOMMU these are side by side;
// the memory behind them need not be.
func AcrossPages(addr uint64, n int) bool {
	return n > 0 && addr/pageSize != (addr+uint64(n)-1)/pageSize
}
