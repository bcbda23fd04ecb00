// The member clusters of all fleets: what each may run, runs, and can run.

import { drawing, drawnWidth } from "./calendar.js";
import { h } from "./dom.js";
import { duration, linkTo, plural } from "./format.js";
import { full, members, spent } from "./workload.js";

function state(cluster) {
  if (cluster.ready === true) return h("span.badge.fine", "ready");
  const silent = cluster.silentSeconds ? `, silent for ${duration(cluster.silentSeconds)}` : "";
  return cluster.ready === false ? h("span.badge.unready", `does not answer${silent}`) : h("span.badge.untrusted", "not known");
}

function group({ name, shares, ...rest }) {
  const row = ({ autoscaler, status }) => {
    const path = `${autoscaler.namespace}/${autoscaler.name}`;
    return { key: path, name: h("a", { href: linkTo(autoscaler) }, path), status, lost: rest.ready === false };
  };
  return { title: [h("b", name), " ", state(rest), !shares.length && " no share of a fleet"], rows: shares.map(row) };
}

function summary(clusters) {
  const lost = clusters.filter((cluster) => cluster.ready === false).length;
  const those = (what, is) => {
    const names = clusters.filter(({ shares }) => shares.some(({ status }) => is(status))).map(({ name }) => name);
    return names.length > 0 && `${what}: ${names.length > 3 ? plural(names.length, "member") : names.join(", ")}`;
  };
  const facts = [plural(clusters.length, "member"), lost && `${lost} not answering`, those("full", full), those("budget used up", (status) => spent(status) && !full(status))];
  return facts.filter(Boolean).map((fact) => h("span", fact));
}

export const clusters = {
  title: () => "Clusters",

  async load(app, signal) {
    const [view, svg] = await Promise.all([app.get("api/v1/clusters", signal), app.get(`api/v1/clusters.svg?width=${drawnWidth()}`, signal)]);
    return { ...view, svg };
  },

  skeleton: () => h("div.waiting", h("h1", "Clusters"), h("div.ghost.tall"), h("div.ghost.tall")),

  draw({ data, now }) {
    if (!data.clusters.length) return [h("div.head", h("h1", "Clusters")), h("div.empty", h("h2", "There is no member cluster"), h("p", "Members belong to a FederatedHPA, which scales one workload in several clusters."))];
    return [
      h("div.head", h("div", h("h1", "Clusters"), h("p.meta", summary(data.clusters)))),
      drawing(data.svg, "The members, drawn"),
      h("section.card", members("Cluster and fleet", data.clusters.map(group), now())),
    ];
  },
};
