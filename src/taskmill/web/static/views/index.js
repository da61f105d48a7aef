// All views by the name in the address.

import { empty } from "../parts/basics.js";
import { errors } from "./errors.js";
import { groups } from "./groups.js";
import { machine } from "./machine.js";
import { nodes } from "./nodes.js";
import { overview } from "./overview.js";
import { schedules } from "./schedules.js";
import { system } from "./system.js";
import { task } from "./task.js";
import { tasks } from "./tasks.js";

const missing = {
  title: () => "Not found",
  reads: () => ({}),
  draw: () => empty("There is no such view", "Choose one of the views in the navigation."),
};

/**
 * A view has: `title(page)`; `reads(route)`, the requests it needs as {name: [path, params]}; `draw(page)`, which
 * describes it; `keys`, what its keys do; `leave()`, when the reader goes elsewhere.
 */
export const VIEWS = { overview, tasks, task, groups, schedules, machine, errors, nodes, system, missing };
