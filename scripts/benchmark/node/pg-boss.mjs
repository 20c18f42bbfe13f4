// pg-boss. One of its workers fetches at most twice a second, so the way to more are large batches and several workers.
// load DATABASE-URL COUNT | run DATABASE-URL SINK-URL CONCURRENCY
import PgBoss from "pg-boss";
import { inChunks, poster } from "./common.mjs";

const [mode, connectionString, ...rest] = process.argv.slice(2);
const boss = new PgBoss({ connectionString, max: 10 });
boss.on("error", console.error);
await boss.start();

if (mode === "load") {
  await boss.createQueue("deliver");
  await inChunks(Number(rest[0]), (messages) =>
    boss.insert(messages.map((data) => ({ name: "deliver", data }))),
  );
  await boss.stop({ graceful: false });
} else {
  const workers = 4;
  const concurrency = Number(rest[1]);
  const post = poster(rest[0], concurrency);
  const deliver = async (jobs) => {
    let next = 0;
    const lane = async () => {
      while (next < jobs.length) {
        const job = jobs[next++];
        await post(job.id, job.data);
      }
    };
    await Promise.all(Array.from({ length: concurrency / workers }, lane));
  };
  for (let i = 0; i < workers; i++) {
    await boss.work("deliver", { batchSize: 1000, pollingIntervalSeconds: 0.5 }, deliver);
  }
}
