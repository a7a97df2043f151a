// A corridor of seven cells, entered in the middle. Action 1 steps to the right, where
// a reward of 1 waits at the end; action 0 to the left, where it is -1. Whoever takes
// too long is stopped.

export const NUM_CELLS = 7;
const LONGEST = 50;

// What the learner must know of it, as ArraySpec describes it.
export const SPEC = {
  observations: [
    { name: "cells", dtype: "float32", shape: [NUM_CELLS], num_values: 0, minimum: 0, maximum: 1 },
  ],
  action: { name: "action", dtype: "int64", shape: [], num_values: 2 },
};

export class Corridor {
  constructor() {
    this.hasEnded = true;
  }

  // Returns what the first row of an episode is made of.
  reset() {
    this.cell = (NUM_CELLS - 1) / 2;
    this.length = 0;
    this.hasEnded = false;
    return { cell: this.cell, reward: 0, isFirst: true, terminated: false, truncated: false };
  }

  // Returns the row that an action led to. After the end of an episode the action is
  // ignored, and the row is the first of the next.
  step(action) {
    if (this.hasEnded) return this.reset();
    this.cell += action === 1 ? 1 : -1;
    this.length += 1;
    const reward = this.cell === NUM_CELLS - 1 ? 1 : this.cell === 0 ? -1 : 0;
    const terminated = reward !== 0;
    const truncated = !terminated && this.length >= LONGEST;
    this.hasEnded = terminated || truncated;
    return { cell: this.cell, reward, isFirst: false, terminated, truncated };
  }
}
