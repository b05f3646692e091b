// SPDX-License-Identifier: Apache-2.0
/*
 * The lake as two readers see it that are not ours.  One request per line of
 * standard input, one answer per line of standard output:
 *
 *	{"sql": "select ...", "digest": true}		DuckDB
 *	{"parquet": PATH, "filter": {...}, "digest": true}	hyparquet
 *	-> {"rows": [[...], ...]}, or {"n": N, "sha256": "..."} of their
 *	   JSON, a line each; or {"error": "..."}; hyparquet adds "read",
 *	   the bytes it asked for
 *
 * Rows of hyparquet are partition, offset, transaction_id, ts, payload.
 * Integers of 64 bits are strings.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const readers = resolve(dirname(fileURLToPath(import.meta.url)),
	'../../build/readers/node_modules');
const load = (path) => import(pathToFileURL(resolve(readers, path)));

let link;

async function duckdb(sql) {
	if (!link) {
		const { DuckDBInstance } = createRequire(readers + '/')(
			'@duckdb/node-api');
		const db = await DuckDBInstance.create(':memory:', {
			threads: '1',
			autoinstall_known_extensions: 'false',
			autoload_known_extensions: 'false',
			// each query reads what it needs
			enable_external_file_cache: 'false',
		});
		link = await db.connect();
	}
	return { rows: (await link.runAndReadAll(sql)).getRowsJson() };
}

async function hyparquet(path, filter) {
	const { asyncBufferFromFile, parquetReadObjects } =
		await load('hyparquet/src/node.js');
	const { compressors } = await load('hyparquet-compressors/src/index.js');
	const file = await asyncBufferFromFile(path);
	let read = 0;
	const rows = await parquetReadObjects({
		file: {
			byteLength: file.byteLength,
			slice: (from, to = file.byteLength) => {
				read += to - from;
				return file.slice(from, to);
			},
		},
		compressors,
		filter: filter && bigints(filter),
		// its own value is a Date, without microseconds
		parsers: { timestampFromMicroseconds: (us) => us },
	});
	return { read, rows: rows.map((r) => [r.partition, String(r.offset),
		r.transaction_id, String(r.ts), r.payload ?? null]) };
}

// 64-bit integers of a filter come as {"i64": "..."}.
function bigints(v) {
	if (v === null || typeof v !== 'object')
		return v;
	if (Array.isArray(v))
		return v.map(bigints);
	if (v.i64 !== undefined)
		return BigInt(v.i64);
	return Object.fromEntries(
		Object.entries(v).map(([k, x]) => [k, bigints(x)]));
}

function digest(rows) {
	const h = createHash('sha256');

	for (const row of rows)
		h.update(JSON.stringify(row) + '\n');
	return { n: rows.length, sha256: h.digest('hex') };
}

for (const line of readFileSync(0, 'utf8').split('\n')) {
	if (line === '')
		continue;
	const ask = JSON.parse(line);
	let answer;
	try {
		answer = ask.sql ? await duckdb(ask.sql)
			: await hyparquet(ask.parquet, ask.filter);
		if (ask.digest) {
			Object.assign(answer, digest(answer.rows));
			delete answer.rows;
		}
	} catch (e) {
		answer = { error: String(e) };
	}
	process.stdout.write(JSON.stringify(answer) + '\n');
}
