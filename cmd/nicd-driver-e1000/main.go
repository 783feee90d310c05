// Command nicd-driver-e1000 is the driver plugin for Intel's 82540EM, 82545EM,
// 82544GC and 82574L. nicd starts it.
package main

import (
	"nicd/drivers/e1000"
	"nicd/framework/plugin"
)

func main() { plugin.Serve(e1000.New()) }
