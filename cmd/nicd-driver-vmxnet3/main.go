// Command nicd-driver-vmxnet3 is the driver plugin for VMware's vmxnet3. nicd
// starts it.
package main

import (
	"nicd/drivers/vmxnet3"
	"nicd/framework/plugin"
)

func main() { plugin.Serve(vmxnet3.New()) }
