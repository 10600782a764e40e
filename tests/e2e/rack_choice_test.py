"""How the algorithm of a collective follows from where its ranks are: four hosts of network namespaces in two racks, a rank each, with a thin uplink
between the racks. Needs root."""
import re
import unittest

from namespaces import enslave, join, make_bridge, make_space, need_namespaces, plug, shape, switch_on, wait_until_all_up
from support import PROGRAM, EndToEnd

PORT = 29551
RACKS = [[0, 1], [2, 3]]
LINK, UPLINK = 400, 50  # Mbit/s; a rack's two hosts share the uplink
SIZE = "256K"


class RackChoice(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        need_namespaces()
        racks = [make_bridge(cls, f"rack{rack}") for rack in range(len(RACKS))]
        cls.hosts = [make_space(cls, f"c{host}") for members in RACKS for host in members]
        for rack, members in zip(racks, RACKS):
            for host in members:
                plug(cls.hosts[host], "wire0", rack, f"port{host}")
                switch_on(cls.hosts[host], "wire0", f"10.213.12.{host + 1}")
                shape(cls.hosts[host], "wire0", LINK)
                shape(rack, f"port{host}", LINK)
        join(racks, "uplink0")
        for rack in racks:
            enslave(rack, "uplink0")
            shape(rack, "uplink0", UPLINK)
        wait_until_all_up(cls.hosts, "wire0")

    def algorithms(self, order):
        """By operation, what rank 0 says it goes by, with rank i on host order[i]; all results are right."""
        chosen = {}
        started = [self.start(["ip", "netns", "exec", self.hosts[host], PROGRAM, "launch", "--nnodes", str(len(order)), "--node-rank", str(rank),
                               "--nproc-per-node", "1", "--master", f"10.213.12.{order[0] + 1}:{PORT}", "--", PROGRAM, "bench", "--op",
                               "all_reduce,reduce_scatter", "--sizes", SIZE, "--iters", "1", "--warmup", "0", "--json"],
                              {"WIREWISE_DEBUG": "info", "WIREWISE_NET": "wire0"}) for rank, host in enumerate(order)]
        finished = [each.finish() for each in started]
        self.assertEqual([each.code for each in finished], [0] * len(order), "\n".join(map(str, finished)))
        results = [event for event in finished[0].events if "wrong" in event]
        self.assertEqual({event["op"] for event in results}, {"all_reduce", "reduce_scatter"})
        self.assertEqual({event["wrong"] for event in results}, {0})
        for operation, algorithm in re.findall(r"(\w+) of 256\.00 KiB goes by (\w+)", finished[0].errors):
            chosen[operation] = algorithm
        return chosen

    def test_sums_go_by_doubling_where_neighbours_share_a_rack(self):
        self.assertEqual(self.algorithms([0, 1, 2, 3]), {"all_reduce": "doubling", "reduce_scatter": "doubling"})

    def test_sums_go_directly_where_all_exchanges_cross_the_uplink(self):
        self.assertEqual(self.algorithms([0, 2, 3, 1]), {"all_reduce": "direct", "reduce_scatter": "direct"})


if __name__ == "__main__":
    unittest.main()
