import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;

/**
 * Decides with the authorizer named by the argument: AclAuthorizer (of 3.9) or StandardAuthorizer. Lines of
 * standard input, with fields separated by tabs; enumerations by their codes on the wire:
 *
 * set SUPER_USERS ALLOW_IF_NONE    begins a new set of ACLs
 * acl RESOURCE_TYPE NAME PATTERN_TYPE PRINCIPAL HOST OPERATION PERMISSION
 * ask PRINCIPAL HOST OPERATION RESOURCE_TYPE NAME
 * any PRINCIPAL HOST OPERATION RESOURCE_TYPE
 *
 * For each set, a line of standard output has a character for each question: 1 if it is allowed, or 0.
 */
public final class DecideByAcls {
    record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    static Authorizer standard(String superUsers, String allowIfNone, List<AclBinding> bindings) {
        StandardAuthorizer made = new StandardAuthorizer();
        made.configure(Map.of("node.id", "0", "super.users", superUsers, "allow.everyone.if.no.acl.found", allowIfNone));
        monitor(made);
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        for (AclBinding binding : bindings) {
            acls.put(new Uuid(1, acls.size() + 1), StandardAcl.fromAclBinding(binding));
        }
        made.loadSnapshot(acls);
        made.completeInitialLoad();
        return made;
    }

    /** Since 4.0, authorize() counts its decisions, in a broker's metrics. */
    static void monitor(Object authorizer) {
        try {
            Class<?> internals = Class.forName("org.apache.kafka.common.metrics.internals.PluginMetricsImpl");
            Constructor<?> constructor = internals.getConstructors()[0];
            Object metrics = constructor.newInstance(new org.apache.kafka.common.metrics.Metrics(), Map.of());
            Class<?> type = Class.forName("org.apache.kafka.common.metrics.PluginMetrics");
            authorizer.getClass().getMethod("withPluginMetrics", type).invoke(authorizer, metrics);
        } catch (ClassNotFoundException before) {
            // 3.9 does not count them.
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** What AclAuthorizer.configure and its reading of ZooKeeper come to. */
    static Authorizer ofZooKeeper(String superUsers, String allowIfNone, List<AclBinding> bindings) throws Exception {
        Class<?> type = Class.forName("kafka.security.authorizer.AclAuthorizer");
        Class<?> entryType = Class.forName("org.apache.kafka.security.authorizer.AclEntry");
        Class<?> aclsType = Class.forName("kafka.security.authorizer.AclAuthorizer$VersionedAcls");
        Object made = type.getConstructor().newInstance();
        Set<KafkaPrincipal> principals = new HashSet<>();
        for (String each : superUsers.split(";")) {
            if (!each.isEmpty()) {
                principals.add(SecurityUtils.parseKafkaPrincipal(each));
            }
        }
        set(type, made, "superUsers", immutable(principals));
        set(type, made, "shouldAllowEveryoneIfNoAclIsFound", Boolean.valueOf(allowIfNone));
        Map<ResourcePattern, Set<Object>> entries = new LinkedHashMap<>();
        for (AclBinding binding : bindings) {
            Object entry = entryType.getConstructor(AccessControlEntry.class).newInstance(binding.entry());
            entries.computeIfAbsent(binding.pattern(), pattern -> new HashSet<>()).add(entry);
        }
        for (Map.Entry<ResourcePattern, Set<Object>> each : entries.entrySet()) {
            Object acls = aclsType.getConstructors()[0].newInstance(immutable(each.getValue()), 0);
            type.getMethod("updateCache", ResourcePattern.class, aclsType).invoke(made, each.getKey(), acls);
        }
        return (Authorizer) made;
    }

    static Object immutable(Set<?> set) {
        return scala.jdk.javaapi.CollectionConverters.asScala(set).toSet();
    }

    static void set(Class<?> type, Object target, String name, Object value) throws Exception {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        field.set(target, value);
    }

    static Client client(String principal, String host) throws Exception {
        return new Client(SecurityUtils.parseKafkaPrincipal(principal), InetAddress.getByName(host));
    }

    static AclOperation operation(String code) {
        return AclOperation.fromCode(Byte.parseByte(code));
    }

    static ResourceType resourceType(String code) {
        return ResourceType.fromCode(Byte.parseByte(code));
    }

    public static void main(String[] arguments) throws Exception {
        boolean ofZooKeeper = arguments[0].equals("AclAuthorizer");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        List<AclBinding> bindings = new ArrayList<>();
        String[] settings = null;
        Authorizer authorizer = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            if (parts[0].equals("set")) {
                if (settings != null) {
                    answers.append('\n');
                }
                settings = parts;
                bindings.clear();
                authorizer = null;
                continue;
            }
            if (parts[0].equals("acl")) {
                bindings.add(new AclBinding(
                    new ResourcePattern(resourceType(parts[1]), parts[2], PatternType.fromCode(Byte.parseByte(parts[3]))),
                    new AccessControlEntry(parts[4], parts[5], operation(parts[6]),
                        AclPermissionType.fromCode(Byte.parseByte(parts[7])))));
                continue;
            }
            if (authorizer == null) {
                authorizer = ofZooKeeper
                    ? ofZooKeeper(settings[1], settings[2], bindings)
                    : standard(settings[1], settings[2], bindings);
            }
            AuthorizationResult result;
            if (parts[0].equals("any")) {
                result = authorizer.authorizeByResourceType(
                    client(parts[1], parts[2]), operation(parts[3]), resourceType(parts[4]));
            } else {
                ResourcePattern pattern = new ResourcePattern(resourceType(parts[4]), parts[5], PatternType.LITERAL);
                Action action = new Action(operation(parts[3]), pattern, 1, false, false);
                result = authorizer.authorize(client(parts[1], parts[2]), List.of(action)).get(0);
            }
            answers.append(result == AuthorizationResult.ALLOWED ? '1' : '0');
        }
        System.out.println(answers);
    }
}
