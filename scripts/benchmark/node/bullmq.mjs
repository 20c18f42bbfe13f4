// BullMQ. Finished jobs are removed, as those of the other peers are.
// load REDIS-URL COUNT | run REDIS-URL SINK-URL CONCURRENCY
import { Queue, Worker } from "bullmq";
import { inChunks, poster } from "./common.mjs";

const [mode, url, ...rest] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };

if (mode === "load") {
  const queue = new Queue("deliver", { connection });
  await queue.obliterate({ force: true });
  await inChunks(Number(rest[0]), (messages) =>
    queue.addBulk(messages.map((data) => ({ name: "deliver", data }))),
  );
  await queue.close();
} else {
  const concurrency = Number(rest[1]);
  const post = poster(rest[0], concurrency);
  new Worker("deliver", (job) => post(job.id, job.data), {
    connection,
    concurrency,
    removeOnComplete: { count: 0 },
  });
}
