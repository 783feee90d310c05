package main_test

import (
	"encoding/json"
	"slices"
	"testing"
)

// BenchmarkRun runs the quickstart as its users do, in three variants in turn, so
// that whatever else the machine does hits all of them, and reports ratios:
// medians over the rounds. Run it with -benchtime 5x or more; a round takes about
// ten seconds.
func BenchmarkRun(b *testing.B) {
	variants := map[string][]string{
		"plugin":     nil,
		"in-process": {`mode = "plugin"`, `mode = "in-process"`},
		"lro-off":    {"lro = true", "lro = false"},
	}
	received := map[string][]float64{} // by vmx0, in Gbit/s
	total := map[string][]float64{}    // of both streams
	cpu := map[string][]float64{}      // seconds per gigabyte
	var resident uint64
	for b.Loop() {
		for name, replace := range variants {
			r := benchReport(b, replace)
			received[name] = append(received[name], r.Interfaces[0].RxGbps)
			total[name] = append(total[name], r.Streams[0].Gbps+r.Streams[1].Gbps)
			cpu[name] = append(cpu[name], r.CPUSecondsPerGigabyte)
			resident = max(resident, r.PeakResidentBytes)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios(total["plugin"], total["in-process"])), "plugin/in-process")
	b.ReportMetric(median(ratios(received["plugin"], received["lro-off"])), "lro-on/off")
	b.ReportMetric(median(cpu["plugin"]), "cpu-s/GB")
	b.ReportMetric(median(cpu["lro-off"]), "cpu-s/GB-lro-off")
	b.ReportMetric(float64(resident)/1e6, "MB-resident")
	for name := range variants {
		b.Logf("%-10s both streams %.2f Gbit/s, vmx0 receives %.2f", name, median(total[name]), median(received[name]))
	}
}

func benchReport(b *testing.B, replace []string) (r report) {
	b.Helper()
	dir := b.TempDir()
	args := []string{"run", "--json", "--for", "3s", "-c", defaultConfig(b, dir, replace...)}
	got := nicd(b, dir, args...)
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.status != 0 {
		b.Fatalf("status %d: %v\n%s%s", got.status, err, got.stdout, got.stderr)
	}
	return r
}

func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return r
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
