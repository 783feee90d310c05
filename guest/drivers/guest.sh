#!/bin/busybox sh
# Init of the guest in which the kernel's drivers run on nicd's models. It reads
# /pairs, tries all that the drivers can do, and reports on the second serial
# line: "ok NAME: DETAIL", "FAIL NAME: DETAIL", and "end".
/bin/busybox mkdir -p /proc /sys /dev /tmp /run
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mount -t tmpfs run /run
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/bin
ip() { /usr/sbin/ip "$@"; } # not busybox's

seconds=4  # of each measurement
rounds=50  # of down and up, unload and load
modules="vmxnet3 e1000 e1000e"

say() { echo "$*" > /dev/ttyS1; }

# check NAME COMMAND...: the last line that it prints is the detail.
check() {
	name=$1
	shift
	if out=$("$@" 2>&1); then
		say "ok $name: $(echo "$out" | tail -n 1)"
	else
		say "FAIL $name: $(echo "$out" | tail -n 9 | tr '\n' ' ')"
	fi
}

# place ADDRESS NAMESPACE PREFIX: the NIC at a PCI address becomes nic0 in a
# network namespace.
place() {
	found=$(ls "/sys/bus/pci/devices/$1/net")
	ip link set "$found" netns "$2" name nic0 &&
		ip -n "$2" address add "$3" dev nic0 && ip -n "$2" link set lo up && ip -n "$2" link set nic0 up
}

# linked NAMESPACE: the link comes up within 15 s.
linked() {
	for _ in $(seq 150); do
		ip -n "$1" -o link show nic0 | grep -q LOWER_UP && return 0
		sleep 0.1
	done
	echo "no link"
	return 1
}

has_mac() { ip -n "$1" -o link show nic0 | grep -q "$2" && echo "$2"; }

pings() { ip netns exec "$1" ping -q -c 3 -W 5 -s "$3" "$2" | grep -q " 0% packet loss" && echo "3 of $3 bytes"; }

# measured FROM TO ADDRESS: TCP from one namespace to the other's address.
measured() {
	/usr/sbin/ip netns exec "$2" iperf3 -s -1 > /tmp/server 2>&1 &
	server=$!
	for _ in $(seq 50); do # until the server listens
		out=$(ip netns exec "$1" iperf3 -f m -t $seconds -c "$3" 2>&1)
		echo "$out" | grep -q "Connection refused" || break
		sleep 0.2
	done
	wait $server
	echo "$out" | grep receiver | awk '{for (i = 2; i <= NF; i++) if ($i == "Mbits/sec") {print $(i-1), "Mbit/s"; if ($(i-1) > 0) good = 1}} END {exit !good}' || {
		echo "$out" | tail -n 3
		tail -n 2 /tmp/server
		return 1
	}
}

# statistics NAMESPACE. Linux's vmxnet3 has the device store its counters by a
# register write that it does not wait for, and QEMU's vfio-user-pci posts such
# writes: what it then reads can be what was stored the time before.
statistics() { ip netns exec "$1" ethtool -S nic0 > /dev/null && sleep 0.2 && ip netns exec "$1" ethtool -S nic0; }

# counted NAMESPACE NAME MORE-THAN: the sum of a statistic over all queues.
counted() {
	all=$(statistics "$1") || return 1
	n=$(echo "$all" | awk -F: -v name="$2" '{gsub(/^ +| +$/, "", $1)} $1 ~ name {sum += $2} END {print sum + 0}')
	echo "$n"
	[ "$n" -gt "$3" ]
}

# clean NAMESPACE: no statistic of an error. (Waiting for buffers or for room in
# a ring is none: the wire pauses its senders.)
clean() {
	bad=$(statistics "$1" | awk -F: 'tolower($1) ~ /err|crc|fail|drop|timeout|missed|discard|buf alloc|hdr too big|oob/ && $2 + 0 != 0 {gsub(/^ +/, "", $1); print $1 "=" $2}')
	[ -z "$bad" ] && echo "none" || { echo "$bad"; return 1; }
}

# copied FROM TO ADDRESS: a file arrives as it is, by HTTP.
copied() {
	/usr/sbin/ip netns exec "$1" httpd -f -p 80 -h /tmp/www > /dev/null 2>&1 &
	server=$!
	sleep 1
	got=$(ip netns exec "$2" wget -q -O - "http://$3/file" | sha256sum)
	kill $server
	[ "$got" = "$(sha256sum < /tmp/www/file)" ] && echo "20 MiB, SHA-256 right"
}

# lro_off NAMESPACE, lro_on NAMESPACE
lro() { ip netns exec "$1" ethtool -K nic0 lro "$2" && ip netns exec "$1" ethtool -k nic0 | grep "^large-receive-offload: $2"; }

flapped() {
	for _ in $(seq $rounds); do
		ip -n "$1" link set nic0 down && ip -n "$1" link set nic0 up || return 1
	done
	linked "$1" && echo "$rounds times"
}

reloaded() {
	for _ in $(seq $rounds); do
		rmmod "$1" && insmod "/modules/$1.ko" || return 1
	done
	echo "$rounds times"
}

place_all() {
	while read -r pair a _ _ b _ _; do
		place "$a" "a$pair" "10.0.$pair.1/24" && place "$b" "b$pair" "10.0.$pair.2/24" || return 1
	done < /pairs
	echo "all"
}

# both PAIR PREFIX: what is tried at each MTU and setting.
both() {
	check "$2, TCP there" measured "a$1" "b$1" "10.0.$1.2"
	check "$2, TCP back" measured "b$1" "a$1" "10.0.$1.1"
}

mkdir -p /tmp/www
dd if=/dev/urandom of=/tmp/www/file bs=1M count=20 2> /dev/null
while read -r m; do insmod "$m"; done < /modules/order
while read -r pair _; do ip netns add "a$pair" && ip netns add "b$pair"; done < /pairs
check "drivers attach" place_all

while read -r pair a mac_a kind_a b mac_b kind_b; do
	what="$kind_a and $kind_b"
	check "$what, link of $kind_a" linked "a$pair"
	check "$what, link of $kind_b" linked "b$pair"
	check "$what, MAC of $kind_a" has_mac "a$pair" "$mac_a"
	check "$what, MAC of $kind_b" has_mac "b$pair" "$mac_b"
	check "$what, ping" pings "a$pair" "10.0.$pair.2" 1400
	both "$pair" "$what"
	check "$what, TSO packets sent by $kind_a" counted "a$pair" "TSO pkts tx" 0
	check "$what, packets that $kind_a merged" counted "a$pair" "LRO pkts rx" 0
	case $kind_b in
	e1000*) check "$what, TSO packets sent by $kind_b" counted "b$pair" "^tx_tcp_seg_good" 0 ;;
	esac
	case $kind_b in
	e1000*) check "$what, checksums verified by $kind_b" counted "b$pair" "^rx_csum_offload_good" 0 ;;
	esac
	check "$what, file there" copied "a$pair" "b$pair" "10.0.$pair.1"
	check "$what, file back" copied "b$pair" "a$pair" "10.0.$pair.2"
	check "$what, LRO off" lro "a$pair" off
	check "$what, LRO off, TCP back" measured "b$pair" "a$pair" "10.0.$pair.1"
	check "$what, LRO on" lro "a$pair" on
	ip -n "a$pair" link set nic0 mtu 9000 && ip -n "b$pair" link set nic0 mtu 9000
	check "$what, MTU 9000, link" linked "b$pair"
	check "$what, MTU 9000, ping" pings "a$pair" "10.0.$pair.2" 8900
	both "$pair" "$what, MTU 9000"
	check "$what, errors of $kind_a" clean "a$pair"
	check "$what, errors of $kind_b" clean "b$pair"
	check "$what, $kind_a down and up" flapped "a$pair"
	check "$what, $kind_b down and up" flapped "b$pair"
	check "$what, ping after that" pings "a$pair" "10.0.$pair.2" 1400
done < /pairs

for m in $modules; do check "$m unloaded and loaded" reloaded "$m"; done
check "drivers attach again" place_all
while read -r pair _ _ kind_a _ _ kind_b; do
	linked "a$pair" && linked "b$pair"
	check "$kind_a and $kind_b, TCP after that" measured "b$pair" "a$pair" "10.0.$pair.1"
done < /pairs

# complaints: lines of the kernel's log that say that something went wrong, each
# kind once.
complaints() {
	found=$(dmesg | grep -E "\<[Hh]ang|[Rr]eset|timed out|timeout|error|WARNING:|BUG:|Call Trace|refused|[Ff]ail" | sed 's/^\[[^]]*\] *//' | sort | uniq -c)
	[ -z "$found" ] && echo "none" || { echo "$found"; return 1; }
}
check "the kernel's complaints" complaints
say end
poweroff -f
