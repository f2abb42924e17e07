/* A stream as a radio telescope's node has it: packets of several stations come by UDP into a ring of some seconds; what has been
 * in it for half of its length is summed over the stations, with time and frequency exchanged, and sent on by UDP. Its figure is the
 * load of the node: processor time of all but the sender, in percent of the stream's own time. The sender keeps its rate, and never
 * more in flight than sockets hold, so that nothing is lost and every run sums the same. */
#define _GNU_SOURCE
#include "models.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STATIONS 8
#define CHANNELS 64
#define TIMES 16
#define SAMPLES (CHANNELS * TIMES)
#define IN_FLIGHT 16		/* packets */
#define RATE 100e6		/* bytes a second */
#define SECONDS 1.5
#define PATIENCE 20		/* seconds without a packet */

struct packet {
	uint32_t station, block;
	int32_t samples[TIMES][CHANNELS];
};

static atomic_ullong received;
static uint64_t packets;
static double sender_used;
static struct sockaddr_in here;

static double used(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int32_t sample(uint32_t station, uint32_t block, unsigned time, unsigned channel)
{
	return (int32_t)(station * 7 + block * 13 + time * 3 + channel);
}

static void broken(const char *what)
{
	perror(what);
	exit(125);
}

static void *send_all(void *nothing)
{
	static struct packet packet;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	double begun = now();

	(void)nothing;
	if (fd < 0 || connect(fd, (struct sockaddr *)&here, sizeof(here)))
		broken("ream-bench-models: stream: connect");
	for (uint64_t i = 0; i < packets; i++) {
		struct timespec pause = {0, 50000};

		packet.station = (uint32_t)(i % STATIONS);
		packet.block = (uint32_t)(i / STATIONS);
		for (unsigned t = 0; t < TIMES; t++)
			for (unsigned c = 0; c < CHANNELS; c++)
				packet.samples[t][c] = sample(packet.station, packet.block, t, c);
		if (corrupt && i == packets / 2)
			packet.samples[3][5]++;
		while (i - atomic_load(&received) >= IN_FLIGHT ||
		       (double)(i * sizeof(packet)) > (now() - begun) * RATE)
			nanosleep(&pause, NULL);
		if (send(fd, &packet, sizeof(packet), 0) != (ssize_t)sizeof(packet))
			broken("ream-bench-models: stream: send");
	}
	close(fd);
	sender_used = used(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

/* A socket on a port of its own. */
static int listener(struct sockaddr_in *address)
{
	struct timeval patience = {PATIENCE, 0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), room = IN_FLIGHT * 2 * (int)sizeof(struct packet);
	socklen_t length = sizeof(*address);

	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (fd < 0 || bind(fd, (struct sockaddr *)address, sizeof(*address)) ||
	    getsockname(fd, (struct sockaddr *)address, &length) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		broken("ream-bench-models: stream: socket");
	return fd;
}

struct outcome stream(size_t mebibytes)
{
	size_t ring_blocks = (mebibytes << 20) / (STATIONS * sizeof(struct packet)) & ~(size_t)1;
	struct packet(*ring)[STATIONS] = array(ring_blocks, sizeof(*ring));
	static int32_t sum[CHANNELS][TIMES];
	struct sockaddr_in sink_address;
	struct outcome outcome = {0};
	uint64_t blocks = (uint64_t)(RATE * SECONDS / (STATIONS * sizeof(struct packet)));
	int in = listener(&here), sink = listener(&sink_address), out = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	pthread_t sender;
	double before;

	if (out < 0 || connect(out, (struct sockaddr *)&sink_address, sizeof(sink_address)))
		broken("ream-bench-models: stream: connect");
	packets = (blocks + ring_blocks / 2) * STATIONS;
	before = used(CLOCK_PROCESS_CPUTIME_ID);
	if (pthread_create(&sender, NULL, send_all, NULL))
		broken("ream-bench-models: stream: pthread_create");
	for (uint64_t i = 0; i < packets; i++) {
		uint64_t block = i / STATIONS, late;
		struct packet *place = &ring[block % ring_blocks][i % STATIONS];
		int64_t all = 0, expected;

		/* One sender over loopback: in order, so the place is known before the packet is. */
		if (recv(in, place, sizeof(*place), 0) != (ssize_t)sizeof(*place))
			broken("ream-bench-models: stream: recv");
		atomic_fetch_add(&received, 1);
		if (place->station != i % STATIONS || place->block != block)
			outcome.wrong = "packets were lost";
		if (i % STATIONS != STATIONS - 1 || block < ring_blocks / 2)
			continue;
		late = block - ring_blocks / 2;
		for (unsigned c = 0; c < CHANNELS; c++)
			for (unsigned t = 0; t < TIMES; t++) {
				int32_t value = 0;

				for (unsigned s = 0; s < STATIONS; s++)
					value += ring[late % ring_blocks][s].samples[t][c];
				sum[c][t] = value;
				all += value;
			}
		expected = (int64_t)SAMPLES * (7 * STATIONS * (STATIONS - 1) / 2 + STATIONS * 13 * (int64_t)late) +
			   (int64_t)STATIONS * (3 * CHANNELS * TIMES * (TIMES - 1) / 2 + TIMES * CHANNELS * (CHANNELS - 1) / 2);
		if (all != expected || sum[CHANNELS - 1][0] - sum[0][0] != STATIONS * (CHANNELS - 1))
			outcome.wrong = "another sum";
		outcome.sum += (uint64_t)all;
		/* Nobody takes it out of its buffer, which drops what does not fit: that is the network's business. */
		if (send(out, sum, sizeof(sum), 0) != (ssize_t)sizeof(sum))
			broken("ream-bench-models: stream: send");
	}
	pthread_join(sender, NULL);
	before = used(CLOCK_PROCESS_CPUTIME_ID) - before - sender_used;
	outcome.figure = before * 100 / ((double)(packets * sizeof(struct packet)) / RATE);
	close(in);
	close(out);
	close(sink);
	return outcome;
}
