/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target once over each file of the folders named, for machines
 * without libFuzzer and for `make unit`.  Prints TAP.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int
run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *p;
	size_t n;

	if (!f || fstat(fileno(f), &st) < 0)
		return -1;
	/* Exactly as large as the input, so sanitizers see an overread. */
	p = malloc(st.st_size > 0 ? (size_t)st.st_size : 1);
	if (!p)
		abort();
	n = fread(p, 1, (size_t)st.st_size, f);
	fclose(f);
	LLVMFuzzerTestOneInput(p, n);
	free(p);
	return 0;
}

int
main(int argc, char **argv)
{
	int n = 0, bad = 0;

	for (int i = 1; i < argc; i++) {
		struct dirent **list;
		int count = scandir(argv[i], &list, NULL, alphasort);

		for (int k = 0; k < count; k++) {
			char path[4096];

			snprintf(path, sizeof(path), "%s/%s", argv[i],
				list[k]->d_name);
			if (list[k]->d_name[0] != '.') {
				int rc = run_file(path);

				bad += rc != 0;
				printf("%sok %d - %s\n", rc ? "not " : "", ++n,
					path);
				fflush(stdout);
			}
			free(list[k]);
		}
		if (count >= 0)
			free(list);
	}
	return bad > 0 || n == 0;
}
