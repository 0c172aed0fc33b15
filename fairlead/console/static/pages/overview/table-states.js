// The states of the rows of a table, from the column that says it.

import { stateOfWord, WORKING } from "../../core/status.js";

const COLUMNS = ["Phase", "Status", "Ready", "State"];

export function tableStates(list) {
  const counts = new Map();
  for (const row of list.items.values()) {
    const state = stateOfRow(list, row);
    if (state) counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return counts;
}

function stateOfRow(list, row) {
  if (row.object.metadata.deletionTimestamp) return WORKING;
  const index = list.columns.findIndex((column) => COLUMNS.includes(column.name));
  const word = index < 0 ? "" : row.cells[index];
  return stateOfWord(word) || (index < 0 ? "" : WORKING);
}

tableStates.of = stateOfRow;
