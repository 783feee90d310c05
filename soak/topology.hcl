# What `nicd soak` runs: a vmxnet3 and an 82574L on one wire with TCP both ways, and
# beside that a bridge of the two drivers with TCP through it, both ways. All
# connections are opened with an MTU of 9000, so that jumbo frames are used
# whenever the MTU allows them.

wire "w0" {}
wire "w1" {}
wire "w2" {}

driver "vmxnet3" { mode = "plugin" }
driver "e1000" { mode = "plugin" }

interface "vmx0" {
  driver    = "vmxnet3"
  mtu       = 9000
  rx_queues = 4
  tx_queues = 4
  device "sim" {
    model    = "vmxnet3"
    revision = 3
    wire     = "w0"
  }
  port "netstack" { address = ["10.0.0.1/24", "fd00::1/64"] }
}

interface "em0" {
  driver = "e1000"
  mtu    = 9000
  device "sim" {
    model = "82574L"
    wire  = "w0"
  }
  port "netstack" { address = ["10.0.0.2/24", "fd00::2/64"] }
}

interface "left" {
  driver    = "e1000"
  mtu       = 9000
  device "sim" {
    model = "82574L"
    wire  = "w1"
  }
  port "netstack" { address = "10.0.1.1/24" }
}

interface "in" {
  driver    = "vmxnet3"
  mtu       = 9000
  rx_queues = 2
  tx_queues = 2
  device "sim" {
    model    = "vmxnet3"
    revision = 4
    wire     = "w1"
  }
  port "forward" { bridge = "br0" }
}

interface "out" {
  driver = "e1000"
  mtu    = 9000
  device "sim" {
    model = "82574L"
    wire  = "w2"
  }
  port "forward" { bridge = "br0" }
}

interface "right" {
  driver    = "vmxnet3"
  mtu       = 9000
  rx_queues = 2
  tx_queues = 2
  device "sim" {
    model    = "vmxnet3"
    revision = 2
    wire     = "w2"
  }
  port "netstack" { address = "10.0.1.2/24" }
}

stream "vmx0-em0" {
  from = "vmx0"
  to   = "em0"
}

stream "em0-vmx0" {
  from = "em0"
  to   = "vmx0"
}

stream "left-right" {
  from = "left"
  to   = "right"
}

stream "right-left" {
  from = "right"
  to   = "left"
}
