// The states of the rows of a table, from the columns that say it.

import { WORKING } from "../../core/status.js";
import { stateOfCell, worst } from "../../widgets/state.js";

const COLUMNS = ["Phase", "Status", "Ready", "State"];

export function tableStates(list) {
  const counts = new Map();
  for (const row of list.items.values()) {
    const state = stateOfRow(list, row);
    if (state) counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return counts;
}

export const stateOfRow = (list, row) => stateFoundInRow(list, row).state;

// The worst of the row: {state, word}. A word that is no state, such as none before the first report, is that of an
// object under way.
export function stateFoundInRow(list, row) {
  if (row.object.metadata.deletionTimestamp) return { state: WORKING, word: "Deleting" };
  const states = list.columns.flatMap(({ name }, index) =>
    COLUMNS.includes(name) && row.cells[index] ? [stateOfCell(row.cells[index], name)] : [],
  );
  const found = states.length ? worst(states) : { state: "", word: "" };
  const isKnown = found.state || !list.columns.some(({ name }) => COLUMNS.includes(name));
  return isKnown ? found : { state: WORKING, word: found.word };
}
