/*
 * Benchmarks librte_gro. What is timed is, for each packet, rte_net_get_ptype (so that the engine has the header
 * lengths that it needs and that the others find out themselves) and, for each batch, rte_gro_reassemble_burst. It does
 * not look at checksums.
 *
 * usage: gro <EAL options> -- <trace file> ...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_gro.h>
#include <rte_mbuf.h>
#include <rte_net.h>

enum { BATCH = 64, WARM = 4, PASSES = 21, MAX_PACKETS = 32768 };

static uint32_t count, header_len, payload_len;
static uint8_t *payload, *headers;
static struct rte_mbuf *packets[MAX_PACKETS];

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "dpdk: %s\n", what);
		exit(1);
	}
}

static void load(const char *name)
{
	FILE *f = fopen(name, "rb");
	must(f != NULL, name);
	must(fread(&count, 4, 1, f) == 1 && fread(&header_len, 4, 1, f) == 1 && fread(&payload_len, 4, 1, f) == 1, name);
	must(count <= MAX_PACKETS, name);
	free(payload);
	free(headers);
	payload = malloc(payload_len);
	headers = malloc((size_t)count * header_len);
	must(fread(payload, payload_len, 1, f) == 1 && fread(headers, header_len, count, f) == count, name);
	fclose(f);
}

static void reset(int whole)
{
	for (uint32_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		m->data_off = RTE_PKTMBUF_HEADROOM;
		m->data_len = header_len + payload_len;
		m->pkt_len = m->data_len;
		m->nb_segs = 1;
		m->next = NULL;
		m->ol_flags = 0;
		uint8_t *d = rte_pktmbuf_mtod(m, uint8_t *);
		memcpy(d, headers + (size_t)i * header_len, header_len);
		if (whole)
			memcpy(d + header_len, payload, payload_len);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static double pass(uint32_t *outputs)
{
	const struct rte_gro_param param = {
		.gro_types = RTE_GRO_TCP_IPV4, .max_flow_num = BATCH, .max_item_per_flow = BATCH,
	};
	struct rte_mbuf *batch[BATCH];
	double start = now();
	*outputs = 0;
	for (uint32_t i = 0; i < count; i += BATCH) {
		for (uint32_t j = 0; j < BATCH; j++) {
			struct rte_mbuf *m = packets[i + j];
			struct rte_net_hdr_lens lens;
			m->packet_type = rte_net_get_ptype(m, &lens, RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK | RTE_PTYPE_L4_MASK);
			m->l2_len = lens.l2_len;
			m->l3_len = lens.l3_len;
			m->l4_len = lens.l4_len;
			batch[j] = m;
		}
		*outputs += rte_gro_reassemble_burst(batch, BATCH, &param);
	}
	return now() - start;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int n = rte_eal_init(argc, argv);
	must(n >= 0, "rte_eal_init");
	struct rte_mempool *pool = rte_pktmbuf_pool_create("gro", MAX_PACKETS + 1, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	must(pool != NULL, "rte_pktmbuf_pool_create");
	for (int i = 0; i < MAX_PACKETS; i++) {
		packets[i] = rte_pktmbuf_alloc(pool);
		must(packets[i] != NULL, "rte_pktmbuf_alloc");
	}
	for (int i = n + 1; i < argc; i++) {
		double t[PASSES];
		uint32_t outputs = 0;
		load(argv[i]);
		reset(1);
		for (int j = 0; j < WARM; j++) {
			reset(0);
			pass(&outputs);
		}
		for (int j = 0; j < PASSES; j++) {
			reset(0);
			t[j] = pass(&outputs);
		}
		qsort(t, PASSES, sizeof t[0], compare);
		const char *base = strrchr(argv[i], '/');
		printf("%s false %.2f %.2f %u\n", base ? base + 1 : argv[i], t[PASSES / 2] / count, t[0] / count, outputs);
	}
	return 0;
}
