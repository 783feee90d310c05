package config_test

import (
	"errors"
	"fmt"

	"nicd/config"
)

func Example() {
	const src = `
wire "w0" {}

interface "em0" {
  driver = "e1000"
  device "sim" {
    model = "82574L"
    wire  = "w0"
  }
  port "netstack" {
    adress = "10.0.0.2/24"
  }
}
`
	_, err := config.Parse("nicd.hcl", []byte(src), config.Vocabulary{Drivers: []string{"e1000", "vmxnet3"}})
	var problems config.Diagnostics
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Println(p.Error())
		}
	}
	// Output:
	// nicd.hcl:10: port "netstack" of interface em0 has no address
	// nicd.hcl:11: unknown attribute "adress" in port "netstack" of interface em0; did you mean "address"?
}
