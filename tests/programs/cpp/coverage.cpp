// What a C++ program touches: containers, new and delete on two threads, static objects and arrays, both stacks; prints a
// line for each, as c/look.h does.
#include "look.h"
#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using Item = std::array<char, 560>;

static Item item(char value)
{
	Item item;

	item.fill(value);
	return item;
}

// A list's and a map's nodes: each an operator new of some 600 bytes. Like all that follows they stay until the end.
static void nodes(const char *list_name, const char *map_name)
{
	auto &list = *new std::list<Item>;
	auto &map = *new std::map<size_t, Item>;
	sum in_list{}, in_map{};

	for (size_t i = 0; i < 48 * MEGABYTE / sizeof(Item); i++)
		list.push_back(item(1));
	for (size_t i = 0; i < 24 * MEGABYTE / sizeof(Item); i++)
		map.emplace(mix(i), item(3));
	for (const Item &one : list)
		add(&in_list, one.data(), one.size());
	for (const auto &one : map)
		add(&in_map, one.second.data(), one.second.size());
	say(list_name, &in_list);
	say(map_name, &in_map);
}

// Blocks of one size by new; then every other one is deleted and made anew.
static void blocks(const char *name, const char *again, size_t size, size_t all)
{
	auto &held = *new std::vector<std::unique_ptr<char[]>>(all / size);
	const auto make = [size](std::unique_ptr<char[]> &block) {
		block.reset(new char[size]);
		std::fill_n(block.get(), size, 1);
	};
	const auto show = [&held, size](const char *name) {
		sum seen{};

		for (auto &block : held)
			add(&seen, block.get(), size);
		say(name, &seen);
	};

	std::for_each(held.begin(), held.end(), make);
	show(name);
	for (size_t i = 0; i < held.size(); i += 2)
		held[i].reset();
	for (size_t i = 0; i < held.size(); i += 2)
		make(held[i]);
	show(again);
}

// A vector that grew.
static void grown(const char *name, size_t bytes)
{
	auto &numbers = *new std::vector<uint64_t>;
	sum seen{};

	while (numbers.size() < bytes / sizeof(uint64_t))
		numbers.push_back(numbers.size());
	add(&seen, numbers.data(), bytes);
	say(name, &seen);
}

static void worker()
{
	nodes("heap_worker_list", "heap_worker_map");
	blocks("heap_worker_128k", "again_worker_128k", 200 << 10, 48 * MEGABYTE);
	blocks("heap_worker_1m", "again_worker_1m", 1500 << 10, 48 * MEGABYTE);
	grown("heap_worker_vector", 64 * MEGABYTE);
	deep("stack_worker", 7 * MEGABYTE, (uintptr_t)__builtin_frame_address(0));
}

// An object whose constructor runs before main.
struct Table {
	char bytes[64 * MEGABYTE];
	Table() { bytes[MEGABYTE] = 1; }
};

static char bss_4m[4 * MEGABYTE];
static Table bss_64m;
static char data_16m[16 * MEGABYTE] = {1};

int main()
{
	begin_to_look();
	must(bss_64m.bytes[MEGABYTE] == 1 && data_16m[0] == 1);
	one("bss_4m", bss_4m, sizeof bss_4m);
	one("bss_64m", bss_64m.bytes, sizeof bss_64m.bytes);
	one("data_16m", data_16m, sizeof data_16m);
	nodes("heap_main_list", "heap_main_map");
	blocks("heap_main_128k", "again_main_128k", 200 << 10, 48 * MEGABYTE);
	blocks("heap_main_1m", "again_main_1m", 1500 << 10, 48 * MEGABYTE);
	grown("heap_main_vector", 64 * MEGABYTE);
	deep("stack_main", 7 * MEGABYTE, (uintptr_t)__builtin_frame_address(0));
	std::thread(worker).join();
	return 0;
}
