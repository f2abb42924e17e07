// Static objects that are made before main and destroyed after it, each with paged memory of its own; and exceptions
// thrown through frames that hold such memory.
#include "common.h"
#include <stdexcept>
#include <thread>
#include <vector>

static size_t words_each = 16 * MEGABYTE / 8;

struct Holder {
	uint64_t number;
	std::vector<uint64_t> words;

	explicit Holder(uint64_t number_) : number(number_), words(words_each)
	{
		fill(words.data(), words.size(), number << 40, 0);
	}
	~Holder()
	{
		check(words.data(), words.size(), number << 40, 0, "at destruction");
		fill(words.data(), words.size(), number << 40, 1);
		printf("holder %lu %016lx\n", number, checksum(words.data(), words.size(), 1));
	}
};

static Holder first(1), second(2), third(3);

static Holder &late()
{
	static Holder holder(4);
	return holder;
}

static thread_local Holder *of_thread;

static void throwing(int depth)
{
	Holder holder(10 + depth);

	if (depth == 3)
		throw std::runtime_error("out of the deep");
	throwing(depth + 1);
}

int main()
{
	static Holder inner(5);

	std::vector<Holder *> more;
	for (uint64_t k = 20; k < 28; k++)
		more.push_back(new Holder(k));
	try {
		throwing(0);
	} catch (const std::exception &error) {
		printf("caught: %s\n", error.what());
	}
	std::thread thread([] {
		of_thread = &late();
		check(of_thread->words.data(), of_thread->words.size(), 4UL << 40, 0, "from a thread");
	});
	thread.join();
	for (Holder *holder : more)
		delete holder;
	return 3;
}
