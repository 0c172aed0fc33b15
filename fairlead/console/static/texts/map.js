// Texts of the map.

export const T = {
  title: "Map",
  arrange: "Arrange by",
  by: {
    clusters: "Clusters, and what is in them",
    projects: "Projects, and what is in them",
  },
  in: {
    clusters: (project) => `project ${project}`,
    projects: (cluster) => `in ${cluster}`,
  },
  filter: "Filter by name",
  nothing: "There is nothing that you may see yet.",
  noMatch: "Nothing has this name.",
  without: {
    clusters: "In no cluster yet",
    projects: "In no project",
  },
  inside: (title) => `What is in ${title}`,
  troubled: (count) => `${count} ${count === 1 ? "needs" : "need"} attention`,
  noPods: "No pods.",
  more: (count) => `and ${count} more`,
};
