// C++ containers of small objects, some four times the budget in all: vector, map, unordered_map, string, list; and
// operators new and delete with alignments.
#include "common.h"
#include <list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

struct alignas(256) Wide {
	uint64_t words[32];
};

static std::string text(uint64_t number)
{
	return std::to_string(mix(number)) + std::to_string(mix(number + 1));
}

int main(int argc, char **argv)
{
	size_t megabytes = argument(argc, argv, 1, 256), each = megabytes * MEGABYTE / 6;
	uint64_t sum = 0;

	std::vector<uint64_t> numbers;
	for (uint64_t i = 0; i < each / 16; i++)
		numbers.push_back(mix(i));
	std::map<uint64_t, uint64_t> ordered;
	for (uint64_t i = 0; i < each / 48; i++)
		ordered[mix(i)] = i;
	std::unordered_map<uint64_t, std::string> hashed;
	for (uint64_t i = 0; i < each / 112; i++)
		hashed.emplace(mix(i), text(i));
	std::list<std::unique_ptr<Wide>> wide;
	for (uint64_t i = 0; i < each / 512; i++) {
		wide.push_back(std::make_unique<Wide>());
		must((reinterpret_cast<uintptr_t>(wide.back().get()) & 255) == 0);
		fill(wide.back()->words, 32, i * 32, 0);
	}
	std::string long_text;
	for (uint64_t i = 0; long_text.size() < each / 4; i++)
		long_text += text(i);

	for (uint64_t i = 0; i < numbers.size(); i++)
		must(numbers[i] == mix(i));
	uint64_t previous = 0;
	for (auto &[key, value] : ordered) {
		must(key > previous || previous == 0);
		must(key == mix(value));
		previous = key;
		sum += key * (value + 1);
	}
	for (uint64_t i = 0; i < each / 112; i++) {
		auto found = hashed.find(mix(i));
		must(found != hashed.end() && found->second == text(i));
		if (i % 2)
			hashed.erase(found);
	}
	uint64_t count = 0;
	for (auto &one : wide)
		check(one->words, 32, count++ * 32, 0, "wide");
	for (size_t at = 0, i = 0; at < long_text.size(); i++) {
		std::string part = text(i);
		must(long_text.compare(at, part.size(), part) == 0);
		at += part.size();
	}
	must(::operator new(0) != nullptr);
	try {
		volatile size_t huge = SIZE_MAX / 2;
		char *p = new char[huge];
		printf("impossible: %p\n", static_cast<void *>(p));
	} catch (const std::bad_alloc &) {
		printf("bad_alloc was thrown\n");
	}
	printf("containers %zu %zu %zu %zu %zu %016lx\n", numbers.size(), ordered.size(), hashed.size(), wide.size(),
	       long_text.size(), sum);
}
