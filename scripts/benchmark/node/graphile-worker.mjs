// graphile-worker as its documentation advises for throughput: a local queue, and completions in batches.
// load DATABASE-URL COUNT | run DATABASE-URL SINK-URL CONCURRENCY
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { inChunks, poster } from "./common.mjs";

const [mode, connectionString, ...rest] = process.argv.slice(2);
const logger = new Logger(() => (level, text) => level === "error" && console.error(text));

if (mode === "load") {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  await inChunks(Number(rest[0]), (messages) =>
    utils.addJobs(messages.map((payload) => ({ identifier: "deliver", payload }))),
  );
  await utils.release();
} else {
  const concurrentJobs = Number(rest[1]);
  const post = poster(rest[0], concurrentJobs);
  const runner = await run({
    logger,
    taskList: { deliver: (payload, helpers) => post(helpers.job.id, payload) },
    preset: {
      worker: {
        connectionString,
        concurrentJobs,
        maxPoolSize: 10,
        pollInterval: 100,
        localQueue: { size: 500 },
        completeJobBatchDelay: 5,
        failJobBatchDelay: 5,
      },
    },
  });
  await runner.promise;
}
