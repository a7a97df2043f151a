// An actor in Node, written from protos/inference.proto alone: it asks the learner what
// to do, says hello, and steps groups of corridors with the actions that come back.
//
//     node actor.js ADDRESS [PROTO_FILE]
//
// Ends with exit code 0 when the learner stops, and 1 when it refuses what was sent.

import { randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import { Corridor, NUM_CELLS, SPEC } from "./corridor.js";

const PROTOCOL_VERSION = 1;
const IS_FIRST = 1;
const TERMINATED = 2;
const TRUNCATED = 4;

// Environments that step together and travel in one message.
class Group {
  constructor(index, size) {
    this.index = index;
    this.environments = Array.from({ length: size }, () => new Corridor());
  }

  start() {
    return this.encode(this.environments.map((environment) => environment.reset()));
  }

  step(actions) {
    return this.encode(this.environments.map((e, i) => e.step(actions[i])));
  }

  // Returns the EnvOutputs message: arrays as little-endian bytes in C order.
  encode(rows) {
    const size = rows.length;
    const observations = Buffer.alloc(size * NUM_CELLS * 4);
    const rewards = Buffer.alloc(size * 4);
    const flags = Buffer.alloc(size);
    const episodes = [];
    rows.forEach((row, env) => {
      observations.writeFloatLE(1, (env * NUM_CELLS + row.cell) * 4);
      rewards.writeFloatLE(row.reward, env * 4);
      flags[env] =
        (row.isFirst && IS_FIRST) | (row.terminated && TERMINATED) | (row.truncated && TRUNCATED);
      if (row.terminated || row.truncated) {
        const length = this.environments[env].length;
        episodes.push({ env, episode_return: row.reward, length });
      }
    });
    return {
      env_outputs: {
        group: this.index,
        observations: [observations],
        rewards,
        step_flags: flags,
        episodes,
      },
    };
  }
}

// Returns the int64 [E] actions of a message as numbers.
function decodeActions(bytes) {
  return Array.from({ length: bytes.length / 8 }, (_, i) => Number(bytes.readBigInt64LE(i * 8)));
}

function connect(address, protoFile) {
  const definition = protoLoader.loadSync(protoFile, { keepCase: true, defaults: true, enums: String });
  const { Inference } = grpc.loadPackageDefinition(definition).seed.v1;
  return new Inference(address, grpc.credentials.createInsecure());
}

function getTask(client) {
  const request = { protocol_version: PROTOCOL_VERSION, role: "ROLE_TRAIN" };
  const deadline = Date.now() + 60_000;
  return new Promise((resolve, reject) => {
    client.waitForReady(deadline, (unready) => {
      if (unready) return reject(unready);
      client.GetTask(request, { deadline }, (error, task) => (error ? reject(error) : resolve(task)));
    });
  });
}

// Plays until the stream ends; resolves to its status.
function play(client, groups) {
  const stream = client.Act();
  stream.write({
    hello: {
      protocol_version: PROTOCOL_VERSION,
      run_id: randomUUID(),
      role: "ROLE_TRAIN",
      group_sizes: groups.map((group) => group.environments.length),
      spec: SPEC,
    },
  });
  stream.on("data", (response) => {
    if (response.welcome) {
      console.log(`welcomed to ${response.welcome.run_name}`);
      for (const group of groups) stream.write(group.start());
    } else {
      const { group, actions } = response.actions;
      stream.write(groups[group].step(decodeActions(actions)));
    }
  });
  return new Promise((resolve) => {
    stream.on("error", () => {}); // told by the status as well
    stream.on("status", resolve);
  });
}

const PROTO_FILE = fileURLToPath(new URL("../../../protos/inference.proto", import.meta.url));
const [address, protoFile = PROTO_FILE] = process.argv.slice(2);
const client = connect(address, protoFile);
const task = await getTask(client);
console.log(`task: ${task.env_id}, ${task.num_groups} groups of ${task.envs_per_group}`);
const groups = Array.from({ length: task.num_groups }, (_, i) => new Group(i, task.envs_per_group));
const status = await play(client, groups);
console.log(`the stream ended: ${grpc.status[status.code]}: ${status.details}`);
// OUT_OF_RANGE says that the run is complete. A connection that ends under a call shows as INTERNAL.
const { OK, OUT_OF_RANGE, UNAVAILABLE, CANCELLED, INTERNAL } = grpc.status;
process.exit([OK, OUT_OF_RANGE, UNAVAILABLE, CANCELLED, INTERNAL].includes(status.code) ? 0 : 1);
