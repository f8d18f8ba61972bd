"use strict";
// Node sizes pools of workers by the CPUs of the host, and asks the kernel for interfaces by
// netlink, which a chat does not have. Servers that print where they listen would end there.
const os = require("os");
const { cpus, availableParallelism, networkInterfaces } = os;
const most = Number(process.env.GOMAXPROCS) || Infinity;
os.cpus = () => cpus().slice(0, most);
if (availableParallelism) os.availableParallelism = () => Math.min(availableParallelism(), most);
os.networkInterfaces = () => {
  try {
    return networkInterfaces();
  } catch (e) {
    if (e.code !== "ERR_SYSTEM_ERROR") throw e;
    const lo = { mac: "00:00:00:00:00:00", internal: true };
    return {
      lo: [
        { address: "127.0.0.1", netmask: "255.0.0.0", family: "IPv4", cidr: "127.0.0.1/8", ...lo },
        { address: "::1", netmask: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", family: "IPv6", cidr: "::1/128", scopeid: 0, ...lo },
      ],
    };
  }
};
require("module").syncBuiltinESMExports();
