# nicd's embedded configuration: two NICs on one virtual wire, each driven by its
# driver plugin, and TCP both ways. "nicd config show" prints it; a copy of it,
# given with -c, is a good start for one's own.

daemon {
  log_level = "info"
}

# Carries frames at the speed of memory and loses none: a receiver without
# buffers pauses the sender. loss, duplicate, reorder and corrupt are chances
# from 0 to 1; delay and jitter are times.
wire "w0" {
  flow_control = true
}

# Each driver runs in a process of its own (mode = "in-process" runs it in nicd).
# Quirks set here hold for all its devices; "nicd quirks" lists them.
driver "vmxnet3" {
  mode = "plugin"
}

driver "e1000" {
  mode = "plugin"
}

# VMware's paravirtual NIC. It merges received TCP segments itself: the driver
# declares the quirk lro-owner = "hardware-only", so no software engine exists.
interface "vmx0" {
  driver     = "vmxnet3"
  rx_queues  = 4
  tx_queues  = 4
  interrupts = "msi-x"

  device "sim" {
    model    = "vmxnet3"
    revision = 3
    wire     = "w0"
  }

  features {
    lro = true
  }

  port "netstack" {
    address = "10.0.0.1/24"
  }
}

# Intel's 82574L. It can't merge; the framework's engine does.
interface "em0" {
  driver = "e1000"

  device "sim" {
    model = "82574L"
    wire  = "w0"
  }

  port "netstack" {
    address = "10.0.0.2/24"
  }
}

stream "vmx0-em0" {
  from = "vmx0"
  to   = "em0"
}

stream "em0-vmx0" {
  from = "em0"
  to   = "vmx0"
}
